"""A way to a PostgreSQL socket that can be frozen: SIGSTOP it, and whoever talks through it is cut off."""

import socket
import sys
import threading
from contextlib import suppress


def pump(source, target):
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def main():
    folder, real = sys.argv[1:]
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{folder}/.s.PGSQL.5432")
    server.listen(64)
    print("ready", flush=True)
    while True:
        client, _ = server.accept()
        behind = socket.socket(socket.AF_UNIX)
        behind.connect(f"{real}/.s.PGSQL.5432")
        for pair in ((client, behind), (behind, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


main()
