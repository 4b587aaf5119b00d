module peers/control

go 1.24
