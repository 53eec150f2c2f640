"""What is done about tools, the database, budgets and the agent's own judgement."""

from __future__ import annotations

from tests.handlings.handling import Handling, policy
from tests.helpers.removal import Edit

EXECUTION, EXECUTE, REVIEW = "tools/execution.py", "graph/nodes/tool_execute.py", "graph/nodes/review.py"
LIMITS, SPENDING, PROGRESS = "graph/limits.py", "graph/spending.py", "graph/progress.py"
_ANY_BUG = "except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool is any user's code"
_PUT_DOWN = Edit(
    "graph/durable.py", "GeneratorExit, KeyboardInterrupt, OutOfService)", "GeneratorExit, KeyboardInterrupt)"
)
_CIRCLES = Edit(PROGRESS, "for period in range(1, LONGEST_PERIOD + 1):", "for period in range(0):")
_STALE = Edit(PROGRESS, "if _is_stale(since):", "if False:")
_TO_AND_FRO = Edit(PROGRESS, "if _to_and_fro([turn.snapshot for turn in turns], snapshot):", "if False:")
_SAID_BEFORE = Edit(
    REVIEW, "if state.idle_turns >= IDLE_LIMIT or said in before:", "if state.idle_turns >= IDLE_LIMIT:"
)

TOOLS = (
    Handling(
        "an unknown tool",
        "the model reads which ones there are",
        ("an unknown tool once",),
        (Edit(EXECUTE, "    if tool is None:\n        known", "    if False:\n        known"),),
    ),
    Handling(
        "end of unknown tools",
        "a model does not ask for them for ever",
        ("an unknown tool for ever",),
        policy(('"unknown_tool": Response("continue", 3,', '"unknown_tool": Response("continue", 99,')),
    ),
    Handling(
        "a tool's bug",
        "the model reads what it raised, and the run goes on",
        (
            "a tool raises, once",
            "a tool raises, each time",
            "a tool recurses for ever, once",
            "one of three calls fails",
        ),
        (Edit(EXECUTION, _ANY_BUG, "except ZeroDivisionError as error:  # a tool is any user's code"),),
    ),
    Handling(
        "a tool that exits",
        "it does not end the process",
        ("a tool ends the process, or wants to, *",),
        (Edit(EXECUTION, _ANY_BUG, "except Exception as error:  # a tool is any user's code"),),
    ),
    Handling(
        "time for a tool",
        "one that hangs is stopped",
        ("a tool hangs, once", "an effect that happens, and then hangs"),
        (
            Edit(
                EXECUTION,
                "async with asyncio.timeout(tool.timeout):\n            returned",
                "async with asyncio.timeout(None):\n            returned",
            ),
        ),
    ),
    Handling(
        "what a tool needs is away",
        "the model reads so, and the run goes on",
        ("a tool is not reached, once",),
        (
            Edit(EXECUTION, "except (DevfixError, OSError) as error:", "except ZeroDivisionError as error:"),
            Edit(EXECUTION, _ANY_BUG, "except ZeroDivisionError as error:  # a tool is any user's code"),
        ),
        many_locks=True,
    ),
    Handling(
        "end of a tool's failures",
        "a person is asked when it fails again and again",
        (
            "a tool raises, each time",
            "a tool tells an error, each time",
            "a tool ends the process, or wants to, each time",
        ),
        policy(('"tool_failed": Response("continue", 5,', '"tool_failed": Response("continue", 99,')),
    ),
    Handling(
        "end of a tool's delays",
        "a person is asked when it hangs again and again",
        ("a tool hangs, each time",),
        policy(('"tool_timeout": Response("continue", 5,', '"tool_timeout": Response("continue", 99,')),
    ),
    Handling(
        "end of tools that are away",
        "a person is asked when it can't be reached again and again",
        ("a tool is not reached, each time",),
        policy(('"tool_unavailable": Response("continue", 5,', '"tool_unavailable": Response("continue", 99,')),
    ),
    Handling(
        "end of arguments that are not taken",
        "a person is asked when they are wrong again and again",
        ("arguments that a tool does not take, each time", "a circle of calls that are refused"),
        policy(('"invalid_arguments": Response("continue", 5,', '"invalid_arguments": Response("continue", 99,')),
    ),
    Handling(
        "end of turns in vain",
        "failures of several kinds do not take turns for ever",
        ("failures of two kinds take turns, for ever", "failed calls and broken answers take turns, for ever"),
        policy(("IN_VAIN_LIMIT: Final = 8", "IN_VAIN_LIMIT: Final = 99")),
    ),
    Handling(
        "a success in between",
        "begins the count anew",
        ("failures of two kinds take turns, with a look in between",),
        (Edit("graph/streaks.py", "if not (succeeded and each == IN_VAIN)", "if True"),),
    ),
    Handling(
        "an error that a tool tells",
        "counts like one that it raises",
        ("a tool tells an error, each time",),
        (
            Edit(
                EXECUTE,
                "if performed.result.is_error and not performed.failure else performed",
                "if False else performed",
            ),
        ),
    ),
    Handling(
        "an error's facts",
        "are no evidence that the work is done",
        ("a tool tells an error, once",),
        (Edit(REVIEW, "if result.is_error or not result.facts:", "if not result.facts:"),),
    ),
    Handling(
        "large results",
        "are kept once, outside the state, and shown at both ends",
        ("a tool says 1 MB, once",),
        (Edit(EXECUTE, 'if len(content.encode("utf-8", "surrogatepass")) > INLINE_BYTES:', "if False:"),),
    ),
    Handling(
        "text that no database takes",
        "is kept as it is",
        ("a tool says what no text holds, once",),
        (
            Edit(
                "state/codec.py",
                "        except ormsgpack.MsgpackEncodeError:\n            return self._pack_escaped(value)",
                "        except ZeroDivisionError:\n            return self._pack_escaped(value)",
            ),
        ),
    ),
    Handling(
        "a tool that gives nothing",
        "is told apart from one that has a result",
        ("a tool returns nothing, once",),
        (
            Edit(
                EXECUTION,
                '    return _broken(f"{tool.name} came to its end',
                '    return Performed(returned) or _broken(f"{tool.name} came to its end',
            ),
        ),
    ),
    Handling(
        "retries of a tool",
        "trouble that passes is none of the model's business",
        ("a connection that is refused once is made again",),
        (Edit(EXECUTION, "for tries in range(self._retries):", "for tries in range(0):"),),
    ),
    Handling(
        "arguments are looked at first",
        "the model reads what does not fit, and may mend it",
        ("arguments that a tool does not take: *",),
        (
            Edit(
                EXECUTION,
                "            values = validated(tool, args)\n        except ValueError as error:",
                "            values = validated(tool, args)\n        except ZeroDivisionError as error:",
            ),
        ),
    ),
    Handling(
        "arguments that a tool has not",
        "are not dropped without a word",
        ("arguments that a tool does not take: unknown, once",),
        (Edit(EXECUTION, "    if unknown:\n", "    if False:\n"),),
    ),
    Handling(
        "paths stay inside",
        "nothing is written outside the workspace",
        ("a path that leads out of the workspace",),
        (Edit("tools/workspace.py", 'if ".." in parts:', "if False:"),),
    ),
    Handling(
        "the other side is asked",
        "an effect that failed is known to have happened, or not",
        ("an effect that fails before it happens", "an effect that happens, and then *"),
        (
            Edit(
                EXECUTION,
                "    if tool.verify is None:\n        return _Answer(known=False)",
                "    if True:\n        return _Answer(known=False)",
            ),
        ),
    ),
    Handling(
        "what it says counts",
        "an effect that happened is not done again",
        ("an effect that happens, and then *",),
        (
            Edit(
                EXECUTION,
                'return _Answer(True, None if found is None else ToolResult(content="", facts=dict(found)).facts)',
                "return _Answer(True, None)",
            ),
        ),
    ),
    Handling(
        "an outcome that nobody knows",
        "a person decides",
        ("an effect whose outcome nobody knows",),
        (Edit(EXECUTION, "if not answer.known and not tool.idempotent:", "if False:"),),
    ),
    Handling(
        "what DevFix needs is away",
        "a run is put down, and is not failed",
        ("DevFix's own disk is full while a tool runs",),
        (_PUT_DOWN,),
    ),
    Handling(
        "no step of what was put down",
        "a call that was not made is not taken for one that was",
        ("DevFix's own disk is full while a tool runs",),
        (Edit("graph/agent.py", "raise copy(error.error) from error.error", "raise error.error"),),
    ),
    Handling(
        "an effect that is refused",
        "a person decides",
        ("an effect that is refused",),
        policy(
            (
                '"effect_refused": Response("escalate", 0, "escalate")',
                '"effect_refused": Response("continue", 5, "escalate")',
            )
        ),
    ),
)

DATABASE = (
    Handling(
        "a session that broke",
        "the connection that holds a run's lock is made anew",
        ("all connections are cut*", "PostgreSQL is started anew, *"),
        (
            Edit(
                "state/database.py",
                "if self._direct is None or not await _answers(self._direct):",
                "if self._direct is None:",
            ),
        ),
    ),
    Handling(
        "connections that are lost",
        "they are looked at before they are used, and what met a lost one is done again",
        ("PostgreSQL is started anew, *",),
        (
            Edit(
                "state/database.py",
                "            if await _answers(connection):\n                return connection",
                "            if True:\n                return connection",
            ),
            Edit(
                "state/patience.py",
                "            if not is_lost(error):\n                raise",
                "            if True:\n                raise",
            ),
        ),
        many_locks=True,
    ),
    Handling(
        "a database that keeps nothing",
        "a full disk or a standby puts a run down, and fails none",
        ("it can't be written for a second, *",),
        (
            Edit(
                "state/database.py",
                "except (psycopg.errors.DiskFull, psycopg.errors.ReadOnlySqlTransaction) as error:",
                "except ZeroDivisionError as error:",
            ),
        ),
    ),
    Handling(
        "a transaction that took too long",
        "who waited for a lock, and was cut off, begins anew",
        ("its tables are locked for a second, *",),
        (Edit("state/patience.py", '_HUNG_UP = ("08", "57P", "25P03", "25P04")', '_HUNG_UP = ("08", "57P")'),),
    ),
)

BUDGETS = (
    Handling(
        "budget of money",
        "no call begins once it is used up",
        ("money*", "one answer costs all of it"),
        (Edit(LIMITS, "if budgets.usd is not None and cost_usd >= budgets.usd:", "if False:"),),
    ),
    Handling(
        "budget of tokens",
        "no call begins once it is used up",
        ("tokens*", "no tokens at all", "the limit comes with *"),
        (Edit(LIMITS, "if budgets.tokens is not None and tokens >= budgets.tokens:", "if False:"),),
    ),
    Handling(
        "limit of steps",
        "a run does not go on for ever",
        ("steps are used up*", "failures of two kinds take turns"),
        (Edit(LIMITS, "if step >= budgets.steps:", "if False:"),),
    ),
    Handling(
        "limit of time",
        "a run does not work for longer than it may",
        ("time is over while a tool works",),
        (
            Edit(
                LIMITS,
                'return Standing("failed", "deadline") if active_seconds >= budgets.seconds else None',
                "return None",
            ),
        ),
    ),
    Handling(
        "time holds while a tool works",
        "a call is cut off when the run's time is over",
        ("time is over while a tool hangs",),
        (Edit(EXECUTE, "async with asyncio.timeout(seconds) as own:", "async with asyncio.timeout(None) as own:"),),
    ),
    Handling(
        "time holds while nobody answers",
        "a model that is down is not waited for beyond the run's time",
        ("time is over while a model fails",),
        (
            Edit(
                "graph/asking.py",
                "return self._state.budgets.seconds - self._state.active_seconds - seconds",
                'return float("inf")',
            ),
        ),
    ),
    Handling(
        "limits hold before a call",
        "what a turn asked for is not done once a limit is reached",
        ("the limit comes with *",),
        (Edit("graph/routing.py", '    if _limit_reached(raw):\n        return "review"\n', ""),),
    ),
    Handling(
        "tokens are estimated",
        "what no server counts is not free",
        ("tokens that no server counts",),
        (
            Edit(
                SPENDING,
                "usage = _completed(usage or _NONE, _estimated(record, asked, tools))",
                "usage = usage or _NONE",
            ),
        ),
    ),
    Handling(
        "cached tokens",
        "cost what they cost, not more",
        ("money, with most of it cached",),
        (Edit(SPENDING, 'cached = min(_number(within.get("cache_read")) or 0, given)', "cached = 0"),),
    ),
    Handling(
        "reasoning that is told apart",
        "is counted",
        ("money, with reasoning that is told apart",),
        (Edit(SPENDING, "output + reasoning if reasoning > output else output", "output"),),
    ),
)

JUDGEMENT = (
    Handling(
        "circles",
        "a run that goes round is told so after three rounds",
        ("a circle of 1*", "a circle of 2*", "a circle of 3*", "a circle, a nudge, and then the work"),
        (_CIRCLES,),
    ),
    Handling(
        "long circles",
        "they are seen as circles, or as nothing new",
        ("a circle of 4*",),
        (_CIRCLES, _STALE),
        many_locks=True,
    ),
    Handling(
        "nothing new",
        "a run that sees the same again in any order is told so",
        ("what was seen, in any order",),
        (_STALE,),
    ),
    Handling(
        "what passes is no news",
        "moments, durations and addresses do not hide a circle",
        ("a circle of ? whose results tell the time",),
        (Edit(PROGRESS, 'bare = " ".join(_PASSING.sub("~", text).split())', "bare = text"),),
    ),
    Handling(
        "changes that are undone",
        "edits to and fro are seen, whatever lies between",
        ("edits that undo each other*",),
        (_TO_AND_FRO,),
    ),
    Handling(
        "a person is asked",
        "a run that gets nowhere does not go on for ever",
        ("a circle of [1-4]*", "edits that undo each other*", "what was seen, in any order"),
        policy(('"no_progress": Response("re-plan", 2,', '"no_progress": Response("re-plan", 99,')),
    ),
    Handling(
        "a nudge",
        "a model reads what it has tried before anybody gives up",
        ("a circle, a nudge, and then the work",),
        policy(('"escalate", first="continue"),', '"escalate"),')),
    ),
    Handling(
        "words without calls",
        "a person is asked after three turns of them",
        ("chatter", "false claims of success"),
        (Edit(REVIEW, "if state.idle_turns >= IDLE_LIMIT or said in before:", "if said in before:"),),
    ),
    Handling(
        "the same words",
        "a person is asked at the second time",
        ("the same word again",),
        (_SAID_BEFORE,),
    ),
    Handling(
        "claims and looks in turns",
        "they are seen as the same words, or as a circle",
        ("claims of success after a look",),
        (_SAID_BEFORE, _CIRCLES),
        many_locks=True,
    ),
    Handling(
        "evidence against a claim",
        "a model that says it is done reads what is missing",
        ("a false claim, and then the work",),
        (
            Edit(
                REVIEW,
                "        return _idle(state, nudge)\n",
                '        return {"decision": "continue", "pending_actions": []}\n',
            ),
        ),
    ),
)
