"""One preparation: fetch, convert, try, put in place; or all as it was before."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
from filelock import BaseFileLock
from pegboard_contracts.backend import Backend
from pegboard_contracts.converters import ConversionOrder, Converter, Report
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.lifecycle import ConversionOptions
from pegboard_contracts.models import ModelEntry, Phase
from pegboard_contracts.sources import ModelSource

from pegboard_kernel.board import Board
from pegboard_kernel.engines.frames import Assignment
from pegboard_kernel.models.loading import is_script, serves
from pegboard_kernel.models.operations import unbroken
from pegboard_kernel.models.specs import SpecError, find_source
from pegboard_kernel.preparation.journal import Journal, Note, Step
from pegboard_kernel.preparation.places import Places, size_of
from pegboard_kernel.preparation.swap import forget_old, publish, withdraw
from pegboard_kernel.preparation.trial import servable_in, try_model
from pegboard_kernel.preparation.work import Watch, Work

if TYPE_CHECKING:
    from pegboard_kernel.settings import Settings

logger = logging.getLogger(__name__)

_GB = 10**9
_SHARE_OF_SOURCE = {"int4": 0.4, "int8": 0.6}


class Preparation:
    """Prepare one model: implements `Preparing`. Event loop only.

    `check`, then `run`, then `finish`, each once. Nothing of it is left when `check` or `run`
    raises or is cancelled, but what a source fetched, which it goes on with next time.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the work needs, each used as it is
        self,
        entry: ModelEntry,
        board: Board,
        settings: Settings,
        options: ConversionOptions,
        operation_id: str,
        on_report: Callable[[Report], None],
    ) -> None:
        """Keep what it is done with; nothing is looked at."""
        self.operation_id = operation_id
        self.fields: dict[str, Any] = {}
        self._entry = entry
        self._board = board
        self._settings = settings
        self._options = options
        self._tell = on_report
        self._converter: Converter | None = None
        self._servable = False
        self._published = False
        self._lock: BaseFileLock | None = None
        self._journal = Journal(settings.data_dir)
        self._note = Note(operation_id=operation_id, model=entry.id)
        self._source: ModelSource
        self._address: str
        self._backend: Backend

    @property
    def _places(self) -> Places:
        return Places(self._settings.data_dir, self._entry.id, self.operation_id)

    @property
    def needs_converter(self) -> bool:
        """Tell, after `check`, whether the files are to be converted."""
        return not self._servable

    async def check(self) -> None:
        """Refuse what cannot be done, before anything is fetched.

        Raises `ApiError`: what the source's `preflight` and the converter's `check` raise,
        400 for options that do not fit, 409 `model_busy` and `model_files_linked`, 501
        `converter_not_installed`, 507 `insufficient_disk`.
        """
        await asyncio.to_thread(self._check)

    def _check(self) -> None:
        entry = self._entry
        try:
            self._source, self._address = find_source(self._board, entry.source_model)
        except SpecError as error:
            message = f"The model's source is not understood: {error}."
            raise invalid_request(message, param="source_model", code="unknown_source") from None
        self._backend = self._find_backend()
        self._check_places()
        if self._source.remote:
            facts = self._source.preflight(self._address)
            self._servable, size = facts.servable is True, facts.size_bytes
            known = Path(self._address)
        else:
            known = self._source.resolve(self._address)
            self._servable, size = self._is_servable(known), size_of(known)
        if self._servable:
            self._refuse_options()
            return
        self._check_converter(known)
        self._check_room(size)

    def _find_backend(self) -> Backend:
        entry, device = self._entry, self._options.device
        backends = list(self._board.backends.values())
        for backend in backends:
            if serves(backend, entry, device):
                return backend
        for backend in backends:
            if entry.backend in backend.model_backends:
                return backend
        message = (
            f"No active backend serves '{entry.backend}' models. `pegboard plugins list` shows "
            "which are missing and what installs them."
        )
        raise invalid_request(message, param="backend", code="backend_not_available")

    def _is_servable(self, path: Path) -> bool:
        # A script is served as it is too, but its conversion is what it is there to play.
        return not is_script(self._entry, self._backend) and self._backend.can_serve(path)

    def _check_places(self) -> None:
        self._places.refuse_links()
        try:
            with self._places.locked():
                pass
        except OSError as error:
            raise _from_system(error) from None

    def _refuse_options(self) -> None:
        for name in ("weight_format", "group_size", "ratio", "sym"):
            value = getattr(self._options, name)
            if value is not None and value != getattr(self._entry, name):
                message = (
                    f"'{self._entry.id}' is used as it is and not converted, so '{name}' has no "
                    "meaning here; leave it out."
                )
                raise invalid_request(message, param=name, code="conversion_not_needed")

    def _check_converter(self, source: Path) -> None:
        word = self._entry.backend
        for converter in self._board.converters.values():
            if word in converter.model_backends:
                self._converter = converter
                converter.check(self._order(source))
                return
        message = (
            f"No active converter makes '{word}' models. `pegboard plugins list` shows the "
            "converters, and `pegboard serve --enable NAME` enables one."
        )
        raise ApiError(501, message, param="backend", code="converter_not_installed")

    def _order(self, source: Path) -> ConversionOrder:
        entry, options = self._entry, self._options
        stated = options.weight_format or entry.weight_format
        # How the entry's weights were grouped says nothing about those of another format.
        known = entry if stated == entry.weight_format else None
        trusted = options.trust_remote_code
        return ConversionOrder(
            model=entry.id,
            source=source,
            target=self._places.staging,
            backend=entry.backend,
            weight_format=self._weight_format(),
            group_size=_first(options.group_size, known and known.group_size),
            ratio=_first(options.ratio, known and known.ratio),
            sym=_first(options.sym, known and known.sym),
            trust_remote_code=(entry.trust_remote_code if trusted is None else trusted) is True,
        )

    def _weight_format(self) -> str | None:
        default = None if self._converter is None else self._converter.default_weight_format
        return self._options.weight_format or self._entry.weight_format or default

    def _check_room(self, source_bytes: int | None) -> None:
        share = _SHARE_OF_SOURCE.get(self._weight_format() or "", 1.0)
        needed = round((source_bytes or 0) * share + self._settings.disk_reserve_gb * _GB)
        folder = self._settings.data_dir
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        if needed > free:
            message = (
                f"The conversion of '{self._entry.id}' needs about {needed / _GB:,.1f} GB free in "
                f"the data folder, and {free / _GB:,.1f} GB are. Make room, or choose another "
                "folder with --data-dir."
            )
            raise ApiError(507, message, param="model", code="insufficient_disk")

    async def run(self) -> Preparation:
        """Do it, and put the files in place; `finish` must follow.

        `fields` are then what the catalogue has to say of them. Raises `ApiError`; cancelled
        or failed, the files are as before and no process is left.
        """
        settings = self._settings
        watch = Watch(
            silent=settings.conversion_inactivity_timeout, total=settings.conversion_timeout
        )
        try:
            await self._begin()
            source = await self._fetch(watch)
            if await asyncio.to_thread(self._is_servable, source):
                self.fields = {"path": None}
                return self
            await self._convert(source, watch)
            await self._put_in_place()
        except BaseException as error:
            await unbroken(asyncio.to_thread(self._undo))
            if isinstance(error, OSError):
                raise _from_system(error) from None
            raise
        return self

    async def finish(self, *, taken: bool) -> None:
        """Forget the old files when the catalogue says so of the new ones, else put them back.

        Raises nothing; what cannot be removed now is removed at the next start.
        """
        await asyncio.to_thread(self._forget if taken else self._undo)

    async def _begin(self) -> None:
        self._note.operation_id = self.operation_id
        await unbroken(asyncio.to_thread(self._take_lock))
        await self._write_down("fetching")

    def _take_lock(self) -> None:
        self._lock = self._places.lock()

    async def _write_down(self, step: Step) -> None:
        self._note.step = step
        await unbroken(asyncio.to_thread(self._journal.write, self._note))

    async def _fetch(self, watch: Watch) -> Path:
        source = self._source
        if not source.remote:
            return await asyncio.to_thread(source.resolve, self._address)
        self._tell(Report(phase=Phase.RESOLVING, message="asking the source"))
        environment = await asyncio.to_thread(source.child_environment)
        assignment = Assignment(
            work="fetch",
            plugin=source.name,
            section=dict(self._board.sections.get(source.name, {})),
            address=self._address,
            environment=dict(environment),
        )
        return Path(await self._work(assignment, watch))

    async def _convert(self, source: Path, watch: Watch) -> None:
        if self._converter is None:
            # What was fetched is not what the source said it would be.
            await asyncio.to_thread(self._check_converter, source)
        converter = self._converter
        if converter is None:
            raise RuntimeError("a checked conversion has a converter")
        size = await asyncio.to_thread(size_of, source)
        await asyncio.to_thread(self._check_room, size)
        order = self._order(source)
        await asyncio.to_thread(converter.check, order)
        await self._write_down("converting")
        await asyncio.to_thread(self._places.staging.mkdir, parents=True)
        paths = {"source": str(order.source), "target": str(order.target)}
        assignment = Assignment(
            work="convert",
            plugin=converter.name,
            section=dict(self._board.sections.get(converter.name, {})),
            order=msgspec.structs.asdict(order) | paths,
        )
        await self._work(assignment, watch)
        fields = ("weight_format", "group_size", "ratio", "sym")
        self.fields = {name: getattr(order, name) for name in fields}

    async def _work(self, assignment: Assignment, watch: Watch) -> str:
        work = Work(assignment, watch)
        await work.start()
        try:
            with_process = psutil.Process(work.pid)
            self._note.child, self._note.child_started = work.pid, with_process.create_time()
            await self._write_down(self._note.step)
        except psutil.Error:
            pass  # it has ended already, which `run` tells
        except BaseException:
            await unbroken(work.close())
            raise
        try:
            return await work.run(self._tell)
        finally:
            self._note.child = 0

    async def _put_in_place(self) -> None:
        self._tell(Report(phase=Phase.FINALIZING, message="checking the new files"))
        places, entry = self._places, self._entry
        await self._write_down("finalizing")
        result = await asyncio.to_thread(servable_in, places.staging, self._backend)
        if result is None:
            raise _incomplete()
        if not is_script(entry, self._backend):
            staged = msgspec.structs.replace(entry, path=places.relative(result))
            limit = self._settings.conversion_inactivity_timeout
            await try_model(staged, self._board, self._settings, limit)
        final = places.target / result.relative_to(places.staging)
        self.fields["path"] = places.relative(final)
        self._note.fields = self.fields
        self._note.entry = entry
        self._tell(Report(phase=Phase.FINALIZING, message="putting the new files in place"))
        await unbroken(asyncio.to_thread(self._replace))

    def _replace(self) -> None:
        self._note.step = "replacing"
        self._journal.write(self._note)
        publish(self._places)
        self._published = True

    def _forget(self) -> None:
        try:
            forget_old(self._places)
            self._journal.remove(self._note)
        except OSError as error:
            logger.warning("old files of '%s' are not removed yet: %s", self._entry.id, error)
        self._release()

    def _undo(self) -> None:
        try:
            if self._published:
                # From here on a cut goes back, not on.
                self._note.step = "finalizing"
                self._journal.write(self._note)
            withdraw(self._places, published=self._published)
            self._journal.remove(self._note)
        except OSError as error:
            logger.warning("unfinished files of '%s' are left: %s", self._entry.id, error)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _first(*values: Any) -> Any:  # noqa: ANN401 - one of the values
    return next((value for value in values if value is not None), None)


def _incomplete() -> ApiError:
    message = (
        "The converter ended without a fault, but its files are no complete model. The files "
        "before are as they were; see the server's log."
    )
    return ApiError(500, message, code="conversion_incomplete")


def _from_system(error: OSError) -> ApiError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = "The disk of the data folder is full. Free some space and try again."
        return ApiError(507, message, code="insufficient_disk")
    message = (
        f"The data folder cannot be used: {error.strerror or type(error).__name__}. Check its "
        "owner and permissions."
    )
    return ApiError(500, message, code="data_dir_failed")
