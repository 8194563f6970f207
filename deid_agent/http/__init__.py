"""The HTTP servers of a running agent: health, metrics and the console; and the interface for clients (service*.py)."""

from deid_agent.http.access import AccessSettings
from deid_agent.http.console import CONSOLE_LIMITS, console_routes
from deid_agent.http.history import History
from deid_agent.http.playground_process import PLAYGROUND_BYTES, PlaygroundProcess
from deid_agent.http.review_desk import DeskError, DeskFigures, DeskItem, DeskNote, DeskSpan, NoteState, ReviewDesk
from deid_agent.http.server import OperatorServer, operator_routes
from deid_agent.http.service import Service, ServiceLimits
from deid_agent.http.service_access import Caller, Project, Projects, ServiceAccess, ServiceLogins
from deid_agent.http.service_job_answers import JobAnswers
from deid_agent.http.service_job_fetch import InputOpener
from deid_agent.http.service_job_files import JobFolder, check_job_folder
from deid_agent.http.service_job_inputs import InputRules
from deid_agent.http.service_job_runs import RunLimits
from deid_agent.http.service_jobs import JobLimits, ServiceJobs
from deid_agent.http.service_server import ServiceServer, explain_service_error
from deid_agent.http.smart_service import SmartLogin, make_smart_login
from deid_agent.http.views import ConsoleSources

__all__ = [
    "CONSOLE_LIMITS",
    "PLAYGROUND_BYTES",
    "AccessSettings",
    "Caller",
    "ConsoleSources",
    "DeskError",
    "DeskFigures",
    "DeskItem",
    "DeskNote",
    "DeskSpan",
    "History",
    "InputOpener",
    "InputRules",
    "JobAnswers",
    "JobFolder",
    "JobLimits",
    "NoteState",
    "OperatorServer",
    "PlaygroundProcess",
    "Project",
    "Projects",
    "ReviewDesk",
    "RunLimits",
    "Service",
    "ServiceAccess",
    "ServiceJobs",
    "ServiceLimits",
    "ServiceLogins",
    "ServiceServer",
    "SmartLogin",
    "check_job_folder",
    "console_routes",
    "explain_service_error",
    "make_smart_login",
    "operator_routes",
]
