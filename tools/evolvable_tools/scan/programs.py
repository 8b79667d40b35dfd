"""What a program does with secrets, files and the network, read from its statements as sources and sinks."""

import re
from collections.abc import Iterator

from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.views import View, written_out

_M = Severity.MEDIUM

_WHOLE_ENVIRONMENT = re.compile(
    r"dict\(\s?os\.environ\b|os\.environ\.(?:items|values)\(|(?<!env=)(?<!env = )os\.environ\.copy\(|(?<!env={)(?<!env=dict\()\*\*os\.environ|(?:dumps|str|repr|list|urlencode|update|print)\(\s?(?:dict\()?os\.environ\s?[,)]"
    r"|json\.stringify\(\s?process\.env\b(?!\.)|(?:entries|values|keys|assign)\([^)\n]{0,20}process\.env\s?[,)]"
    r"|(?<!env: )(?<!env:)(?<!\.\.\.)process\.env\s?[,)]|(?:get-childitem|gci|dir|ls)\s+env:|\benv\.to_h\b|\benv\.(?:inspect|map|each)|os\.environ\(\)|%env\b|join[^\n]{0,20}%env"
    r"|system\.getenv\(\)|\$_env\b|\$_server\b|getenv\(\)|(?:^|[\s`$(;])(?:printenv|env|export -p|set)\s{0,3}\||\$\((?:printenv|env|export -p)\s?[)|]|`(?:printenv|env)`|\bprintenv\b|/proc/(?:self|\d+)/environ"
    r"|for\s+\w+(?:\s?,\s?\w+)?\s+in\s+os\.environ"
)
_CREDENTIALS = re.compile(
    r"\.ssh\b|\.aws\b|\.npmrc|\.netrc|\.pgpass|\.pypirc|\.gnupg|\.kube\b|\.docker/config|git-credentials|\.config/(?:gh|gcloud)|id_rsa|id_ed25519|/etc/(?:passwd|shadow)"
    r"|login data|cookies\.sqlite|logins\.json|login\.keychain|find-generic-password|secret-tool|\.bash_history|\.zsh_history|wallet\.dat|\.claude/\.credentials"
    r"|\.codex/auth|credential(?:manager|s\.json|s\b[^\n]{0,20}read)|keyring\.get|cmdkey|vaultcmd|mimikatz|aws_secret_access_key|aws_session_token"
    r"|ssh_auth_sock|169\.254\.169\.254|metadata\.google\.internal|(?<![\w.])\.env\b(?!\.example)"
)
_NAMED_KEYS = re.compile(
    r"(?:github|gh|gitlab|npm|pypi|anthropic|openai|aws|azure|google|slack|stripe|hf|huggingface|database|db|postgres|ssh|vault|docker)"
    r"\w{0,20}_(?:token|key|secret|password|pat|url|credentials)\b"
)
_FILES = re.compile(
    r"\bopen\(|read_text|read_bytes|readfile(?:sync)?\(|os\.readfile|file_get_contents|readall|get-content|gc\s|os\.walk|\bglob\b|rglob|path\.home|expanduser|\$home\b|~/"
    r"|(?:^|[\s|;&(])(?:cat|tar|zip|gzip|xxd|base64|pg_dump(?:all)?|mysqldump|sqlite3|mongodump)\s|clipboard|pbpaste|xclip|screenshot|imagegrab|screencapture"
    r"|subprocess\.check_output|readlines|file\.read|io\.read|filesystem|\$\(<|<\s?[\"']?[\w/.~*$-]+"
)
_SENDS = re.compile(
    r"urlopen\(|urlretrieve|\brequests\.(?:post|put|patch|get|request|session)|\bhttpx\.|aiohttp|http\.client|httpsconnection|socket\.|create_connection|sendall\(|sendto\("
    r"|smtplib|sendmail|ftplib|paramiko|telnetlib|websocket|\bfetch\(|axios|https?\.(?:request|get|post)\(|xmlhttprequest|sendbeacon|net\.(?:connect|createconnection|dial)"
    r"|dgram|dns\.(?:resolve|lookup|query)|gethostbyname|getaddrinfo|dnspython|nslookup|\bdig\s|resolve-dnsname|\bcurl\b|\bwget\b|\bnc\s|\bncat\b|\bnetcat\b|\bsocat\b|/dev/(?:tcp|udp)/"
    r"|\bscp\s|\brsync\s|git\s+push|invoke-(?:webrequest|restmethod)|\biw[rk]\b|\birm\b|net\.webclient|httpclient|uploadstring|downloadstring|start-bitstransfer|net::http|open-uri"
    r"|rest-?client|faraday|io::socket|lwp::|http\.(?:post|get|newrequest)|urllib|reqwest|ureq|hyper::|curl_exec|curl_init|fsockopen|file_get_contents\(\s?[\"']https?:|mail\(|boto3"
    r"|s3\.upload|put_object|webhook|telegram|okhttp|httpurlconnection|tcpstream|udpsocket|xmlrpc|pycurl|\bgot\(|superagent|needle|node-fetch"
)
_RUNS = re.compile(
    r"(?<![\w.])(?:exec|eval|execfile)\s?[(\"$]|\bcompile\(|\.(?:exec|system|popen|spawn|run|call|check_output|check_call)\(|os\.system|execsync|spawnsync|child_process|new function\("
    r"|invoke-expression|\biex\b|runpy|__import__|importlib|pickle\.loads?\(|marshal\.loads?|yaml\.load\(|dill|joblib\.load|vm\.run|instance_eval|class_eval|kernel\.|assert\(\s?\$|create_function"
    r"|\|\s?(?:sudo\s)?(?:ba|z|da|k)?sh\b|\bbash\s+-c|\bsh\s+-c|source\s+<\(|\.\s+<\(|dlopen|ctypes|loadlibrary|rundll32|regsvr32|mshta"
)
_OPAQUE = re.compile(
    r"b64decode|base64\s+-d|base64\s+--decode|frombase64|atob\(|['\"]base64['\"]|fromhex|unhexlify|codecs\.decode|rot_?13|zlib\.decompress|gzip\.decompress|lzma\.|bz2\.|marshal|"
    r"string\.fromcharcode|chr\(\w+\)|\[\s?::-1\s?\]|\.reverse\(\)|(?:\\x[0-9a-f]{2}){6}|(?:\\[0-7]{3}){6}|unescape\(|xor|\bchr\(\d+\)\s?[+.]\s?chr\("
    r"|printf\s+['\"]\\x|xxd\s+-r|tr\s+['\"]?a-z|-enc(?:odedcommand)?\s|pack\(['\"]h\*"
)
_HIDDEN_NAME = re.compile(
    r"(?:__import__|import_module|getattr|require|globals\(\)\[|builtins__?\[?)\s?\(?[^\n)]{0,60}['\"][\w.]{1,12}['\"]\s?\+\s?['\"]|getattr\([^\n]{0,60}(?:\[::-1\]|join\(|\+)"
    r"|\[\s?['\"](?:constructor|eval|exec|system|child_process)['\"]\s?\]|\[['\"]\w{1,8}['\"]\s?\+\s?['\"]\w{1,8}['\"]\]|(?m:(?:^|[\s;&|])\$\{?\w{1,10}\}?\$\{?\w{1,10}\}?\s+-)"
    r"|\b\w{1,5}''\w{1,5}\b|\b\w{1,5}\"\"\w{1,5}\b|(?<=\w)\\(?:[a-z])(?=[a-z]{1,6}\s+-\w)|\$\{\w+:\d+:\d+\}|\$ifs\b|`\w`\w|\"\s?-f\s?['\"]|xargs\s+(?:\S+\s+){0,3}(?:ba|z)?sh\s+-c"
)
_STAYS = re.compile(
    r"(?:\.bashrc|\.zshrc|\.bash_profile|\.profile|\.zprofile|config\.fish|\.git/hooks|core\.hookspath|authorized_keys|launchagents|launchdaemons|systemd/(?:system|user)|/etc/(?:cron|profile|rc|init|sudoers)"
    r"|crontab\s|currentversion\\run|schtasks|register-scheduledtask|new-service|autostart|startup\\|\.pth\b|sitecustomize|usercustomize|\.vscode/tasks|profile\.ps1|\$profile\b|\.ssh/config|/etc/hosts)"
)
_WRITES = re.compile(
    r">>?|write|append|tee\b|copy|symlink|\bcp\s|\bmv\s|install|chmod|add-content|set-content|out-file|crontab\s+-|open\([^)\n]{0,80}['\"][aw]|new-item|register|schtasks|\(crontab"
)
_LIBRARY = re.compile(
    r"\.evolvable\b|evolvable_home|library\.db|evolvable\s+(?:approve|adopt|proposals?|trust|policy|inbox|import|memory|undo|approvals?)|report_outcome"
    r"|\.claude/(?:settings|hooks|agents|skills|commands|claude\.md)|claude\.md|agents\.md|\.mcp\.json|\.codex/(?:config|agents)|settings\.local\.json|bypasspermissions|dangerously-skip"
)
_WEAKENS = re.compile(
    r"set-mppreference|add-mppreference|setenforce\s+0|ufw\s+disable|spctl\s+--|csrutil|-windowstyle\s+hidden|windowstyle\W{1,4}hidden|com\.apple\.quarantine|nopasswd|chmod\s+(?:\S+\s+)?(?:[u+g]\+s|4755|777)"
    r"|history\s+-c|unset\s+histfile|histfile=/dev/null|histsize=0|wevtutil\s+cl|clear-eventlog|amsi|ptrace|ld_preload|dyld_insert|rm\s+-rf\s+(?:~|/|\$home|\.git)\S*(?:\s|$)|shutil\.rmtree\([^\n]{0,40}home"
    r"|keylog|pynput|getasynckeystate"
)
_REMOTE_CODE = re.compile(
    r"(?:exec|eval|loads?|iex|invoke-expression|compile)\s?\(?[^\n]{0,120}(?:urlopen|requests\.get|downloadstring|\biwr\b|\birm\b|\.text\b|fetch\(|r\.content|response)"
    r"|(?:message|onmessage|recv|data)[^\n]{0,80}(?:eval|exec|function)\s?\(|(?:curl|wget|iwr|irm)[^\n]{0,200}\|\s?(?:sudo\s)?(?:ba|z|da)?(?:sh|python3?|node|perl|iex)\b"
    r"|(?:curl|wget)[^\n]{0,200}(?:-o|>)\s?\S+[^\n]{0,80}(?:&&|;)\s?(?:chmod|ba?sh|\./|python)|(?:ba|z)?sh\s+(?:-c\s+[\"']\$\(|<\()\s?(?:curl|wget)"
)


def program(view: View, text: str, *, is_file: bool, changed: str | None = None, known: str = "") -> Iterator[Finding]:
    """Yield what a program does that a person should see first.

    text: the program in lower case, whole. is_file: it is a file and not a code block of a document. changed: only
    the statements that a change brings; None for a new program. known: the programs that were there before. A finding
    needs a statement of the change in it.
    """
    new = text if changed is None else changed
    found = _of_file(text, new, known, changed is not None) if is_file else _of_block(new, changed is not None)
    for rule, why in found:
        excerpt = written_out(new.strip()[:120])
        yield Finding(rule, _M, view.path, 0, excerpt, why, "Read the program before you approve it.")


def _of_file(text: str, new: str, known: str, is_change: bool) -> Iterator[tuple[str, str]]:
    sends, sends_now = _SENDS.search(text) is not None, _SENDS.search(new) is not None
    yield from _of_any(text, new, sends, sends_now)
    if _CREDENTIALS.search(new) or (_CREDENTIALS.search(text) and sends_now):
        yield "program.credentials", "it touches credentials"
    if _OPAQUE.search(text) and _RUNS.search(text) and (_OPAQUE.search(new) or _RUNS.search(new)):
        yield "program.opaque", "it decodes a text and can run it"
    if _HIDDEN_NAME.search(new):
        yield "program.hidden-name", "it puts together the name of what it calls, so that nobody can read it"
    if _LIBRARY.search(new):
        yield "program.library", "it touches this library or an agent's configuration"
    if _WEAKENS.search(new):
        yield "program.weakens", "it turns a protection off or hides what it does"
    if sends_now and _FILES.search(text) and _is_pointed(new):
        yield "program.sends-files", "it reads files and sends to an address"
    if is_change and sends_now and not _SENDS.search(known):
        yield "program.network", "it reaches the network, which this resource did not before"
    if is_change and sends and _NAMED_KEYS.search(new) and not _NAMED_KEYS.search(known):
        yield "program.keys", "it reads a key and reaches the network"


def _of_block(new: str, is_change: bool) -> Iterator[tuple[str, str]]:
    sends = _SENDS.search(new) is not None
    whole = _WHOLE_ENVIRONMENT.search(new)
    if whole and _SENDS.search(new, max(0, whole.start() - 200), whole.end() + 200):
        yield "program.environment", "it reads the whole environment and reaches the network"
    if not is_change:
        return
    if sends and _REMOTE_CODE.search(new):
        yield "program.remote-code", "it runs what an address serves"
    if sends and _CREDENTIALS.search(new):
        yield "program.credentials", "it touches credentials"
    if any(_SENDS.search(line) and _KEY.search(line) for line in new.split("\n")):
        yield "program.keys", "it sends a key"


def _of_any(text: str, new: str, sends: bool, sends_now: bool) -> Iterator[tuple[str, str]]:
    if (sends and _WHOLE_ENVIRONMENT.search(new)) or (sends_now and _WHOLE_ENVIRONMENT.search(text)):
        yield "program.environment", "it reads the whole environment and reaches the network"
    if not sends and not sends_now:
        return
    if _REMOTE_CODE.search(new):
        yield "program.remote-code", "it runs what an address serves"


_KEY = re.compile(r"environ|process\.env|\$\{?\w*(?:token|key|secret|url)\b|getenv")


_RAW = re.compile(
    r"socket\.|create_connection|/dev/(?:tcp|udp)/|\bnc\s|\bncat\b|smtplib|sendmail|dns\.|nslookup|\bdig\s|io::socket|fsockopen|net\.(?:dial|connect)|dgram|tcpstream|ftplib|telnet|mail\("
)
_ADDRESS = re.compile(r"(?:https?|wss?)://[a-z0-9]|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_POST = re.compile(r"post|put|upload|data=|body|--data|-d\s|-f\s|-t\s|urlencode")


def _is_pointed(text: str) -> bool:
    """Return whether a program sends with a raw protocol, or posts to an address that is written in it."""
    return _RAW.search(text) is not None or (_ADDRESS.search(text) is not None and _POST.search(text) is not None)
