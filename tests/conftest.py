"""Options of the whole suite."""


def pytest_addoption(parser):
    parser.addoption("--rewrite", action="store_true", help="write the transcripts of tests/scenarios anew")
