"""What a session writes for: this machine, or the one that judges for it."""

from __future__ import annotations

from cutesmith.agent.settings import Settings
from cutesmith.patterns.generation.target import Target, choose_target
from cutesmith.remote_judge import RemoteHost, remote_device


def target_of(settings: Settings) -> Target:
    """The target of the settings; raises as `choose_target` does, and UnavailableError where `remote` is silent."""
    if not settings.remote:
        return choose_target(settings.arch, settings.on)
    remote = RemoteHost.of(settings.remote)
    return choose_target(settings.arch, settings.on, find_device=lambda: remote_device(remote))
