"""The sandbox: running the user's code apart from the user's machine, within limits, ended whole."""

from tools.sandbox.choose import SandboxReport, choose_sandbox, probe
from tools.sandbox.model import Completed, Limits, ProcessEnded, Sandbox, SandboxProcess

__all__ = [
    "Completed",
    "Limits",
    "ProcessEnded",
    "Sandbox",
    "SandboxProcess",
    "SandboxReport",
    "choose_sandbox",
    "probe",
]
