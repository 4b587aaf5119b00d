"""gunicorn reads this file in the directory where it is started."""

wsgi_app = "wsgi:application"
workers = 4


def post_worker_init(worker):
    worker.wsgi.open()


def worker_exit(server, worker):
    worker.wsgi.close()
