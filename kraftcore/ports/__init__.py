"""What the engine asks of the world around it, and what those who provide it have in common.

transport.py   moves encoded frames between nodes; ``kraftcore.transports`` has two of them
exchange.py    responses in the order of their requests, answers after the end: for whoever writes a transport
nursery.py     tasks beside a block of an application's, and what is raised there
complaints.py  log lines about peers, few enough that hostile ones do not fill the disk
"""
