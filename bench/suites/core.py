from bench import cases_batch, cases_wire
def cases(folder, effort):
    return [*cases_batch.cases(), *cases_wire.cases()]
