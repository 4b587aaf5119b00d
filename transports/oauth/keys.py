"""A JSON Web Key Set that is read again when it changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from kraftcore.errors import RemoteProtocolError
from kraftcore.ports.nursery import uninterrupted
from kraftcore.security.sasl.oauth_keys import VerificationKey, jwt_library, parse_keys
from kraftcore.security.sasl.oauth_settings import TokenValidation
from kraftcore.transports.oauth.fetch import RESPONSE_BYTES_MAX, Fetch, FetchError, fetch

Say = Callable[[str], None]


class FileKeys:
    """Keys from a file. It is looked at whenever keys are needed; a file that does not work leaves the old ones.

    Args:
        path: of the file.
        say: takes a line when the file does not work, once for each change of it.
    """

    def __init__(self, path: str, say: Say) -> None:
        self._path = path
        self._say = say
        self._seen: object = None
        self._keys: Sequence[VerificationKey] = ()

    def current(self) -> Sequence[VerificationKey]:
        """See ``Keys``."""
        try:
            found = os.stat(self._path)
            seen: object = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError as error:
            seen = str(error)
        if seen != self._seen:
            self._seen = seen
            self._read()
        return self._keys

    def look_again(self) -> None:
        """See ``Keys``: they are looked at each time."""

    @uninterrupted
    async def run(self) -> None:
        """Look at the file once, so that what is wrong with it is said at the start."""
        self.current()

    def _read(self) -> None:
        try:
            with Path(self._path).open("rb") as file:
                document = file.read(RESPONSE_BYTES_MAX + 1)
            if len(document) > RESPONSE_BYTES_MAX:
                raise RemoteProtocolError(f"it is longer than {RESPONSE_BYTES_MAX} bytes")
            self._keys = parse_keys(document, with_secrets=True)
        except (OSError, RemoteProtocolError) as error:
            kept = "the keys read before stay in use" if self._keys else "no token can be checked"
            self._say(f"the keys for OAUTHBEARER in {self._path} cannot be read: {error}; {kept}")


class EndpointKeys:
    """Keys from an HTTP server, asked in the background: ``run`` must be running.

    Args:
        settings: which server, and how often.
        say: takes a line when it cannot be had.
    """

    def __init__(self, settings: TokenValidation, say: Say) -> None:
        self._settings = settings
        self._say = say
        self._keys: Sequence[VerificationKey] = ()
        self._wanted = trio.Event()

    def current(self) -> Sequence[VerificationKey]:
        """See ``Keys``."""
        return self._keys

    def look_again(self) -> None:
        """See ``Keys``. The server is asked at most once in ``retry_backoff_max_ms``, however often this is called."""
        self._wanted.set()

    @uninterrupted
    async def run(self) -> None:
        """Ask now, then every ``refresh_ms`` and when somebody has to look again; until cancelled."""
        while True:
            await self._refresh()
            asked = trio.current_time()
            with trio.move_on_after(self._settings.refresh_ms / 1000):
                await trio.sleep_until(asked + self._settings.retry_backoff_max_ms / 1000)
                await self._wanted.wait()

    async def _refresh(self) -> None:
        """Ask until there is an answer."""
        settings, pause_ms, said = self._settings, self._settings.retry_backoff_ms, ""
        while True:
            self._wanted = trio.Event()
            try:
                document = await fetch(Fetch(resource=settings.keys, ca=settings.ca))
                self._keys = parse_keys(document, with_secrets=False)
            except (FetchError, RemoteProtocolError) as error:
                if str(error) != said:
                    said = str(error)
                    kept = "those read before stay in use" if self._keys else "no token can be checked until then"
                    self._say(
                        f"the keys for OAUTHBEARER cannot be had, will ask again: {settings.keys_url}: {said}; {kept}"
                    )
            else:
                return
            await trio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, settings.retry_backoff_max_ms)


def open_keys(settings: TokenValidation, say: Say) -> FileKeys | EndpointKeys:
    """The keys that settings name. Have ``run`` running while they are used.

    Raises:
        MissingDependencyError: PyJWT is not installed.
    """
    jwt_library()
    path = settings.keys.path
    return EndpointKeys(settings, say) if path is None else FileKeys(path, say)
