"""Hosts that need no question.

The hosts that commands of any tool reach, and the options that weaken a check.

What a program does with secrets, files and the network, read from its statements as sources and sinks.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from evolvable_tools.scan import Finding, FindingSeverity
from evolvable_tools.scan.sentence_rules import forbids
from evolvable_tools.scan.text_analysis import MAX_EXCERPT, Sentence, TextPart, TextView, concepts, escape_unprintable

WELL_KNOWN = frozenset(
    [
        "github.com",
        "raw.githubusercontent.com",
        "api.github.com",
        "gist.github.com",
        "objects.githubusercontent.com",
        "ghcr.io",
        "gitlab.com",
        "bitbucket.org",
        "pypi.org",
        "files.pythonhosted.org",
        "registry.npmjs.org",
        "npmjs.com",
        "www.npmjs.com",
        "crates.io",
        "static.crates.io",
        "index.crates.io",
        "docs.rs",
        "pkg.go.dev",
        "proxy.golang.org",
        "go.dev",
        "docs.python.org",
        "developer.mozilla.org",
        "docker.io",
        "registry.hub.docker.com",
        "hub.docker.com",
        "quay.io",
        "mcr.microsoft.com",
        "gcr.io",
        "nvcr.io",
        "public.ecr.aws",
        "huggingface.co",
        "hf.co",
        "astral.sh",
        "bun.sh",
        "deno.land",
        "sh.rustup.rs",
        "get.docker.com",
        "brew.sh",
        "nodejs.org",
        "rubygems.org",
        "packagist.org",
        "repo.maven.apache.org",
        "download.pytorch.org",
        "conda.anaconda.org",
        "unpkg.com",
        "cdn.jsdelivr.net",
        "esm.sh",
        "claude.ai",
        "claude.com",
        "code.claude.com",
        "docs.anthropic.com",
        "api.anthropic.com",
        "api.openai.com",
        "platform.openai.com",
        "skills.sh",
        "deb.nodesource.com",
        "dl.google.com",
        "storage.googleapis.com",
        "packages.microsoft.com",
        "learn.microsoft.com",
        "arxiv.org",
        "api.nuget.org",
        "schemas.microsoft.com",
        "json.schemastore.org",
        "www.w3.org",
        "json-schema.org",
        "fonts.googleapis.com",
        "fonts.gstatic.com",
        "schema.org",
    ]
)
"""Hosts that developers' machines talk to every day. What they serve may still be anybody's."""

_M, _L = FindingSeverity.MEDIUM, FindingSeverity.LOW

_UPLOADS = (
    r"git\s+(?:-\S+\s+)*(?:push|remote\s+(?:add|set-url)|send-email)|rsync|scp|sftp|rclone|lftp|ftp|nc|ncat|netcat|socat|telnet"
    r"|aws\s+s3|gsutil|s3cmd|azcopy|smbclient|croc|wormhole|sendmail|mailx?|mutt|swaks|dig|nslookup|drill|host|ping6?|logger"
    r"|curl[^\n]{0,200}?\s(?:-d|--data\S*|-f|--form\S*|-t|--upload-file|-x\s?p(?:ost|ut)|--json)|wget[^\n]{0,200}?--post-\w+"
    r"|docker\s+push|npm\s+publish|twine\s+upload|kubectl\s+cp|ssh"
)
_TOOLS = (
    r"curl|wget|git|https?|xh|aria2c|iwr|irm|invoke-webrequest|invoke-restmethod|start-bitstransfer|bitsadmin|certutil"
    r"|pip3?|uv|uvx|pipx|poetry|npm|npx|pnpm|yarn|bunx?|deno|cargo|go|gem|bundle|composer|docker|podman|helm|kubectl|terraform|brew"
    r"|apt(?:-get|-key)?|add-apt-repository|dnf|yum|conda|mamba|nix|snap|flatpak|psql|mysql|redis-cli|mongosh?|sqlcmd|claude|codex"
)
_UPLOAD = re.compile(rf"(?:^|[\s`$(|;&\"'/])(?:{_UPLOADS})[\s`]")
_PUSHES = re.compile(
    r"(?:^|[\s`$(|;&\"'/])(?:git\s+(?:-\S+\s+)*(?:push|remote\s+(?:add|set-url))|rsync|scp|sftp|rclone|lftp|nc|ncat|netcat|socat|telnet|docker\s+push)[\s`]"
)
_TOOL = re.compile(rf"(?:^|[\s`$(|;&\"'/])(?:{_TOOLS})\s")
_INDEX = re.compile(
    r"--(?:extra-)?index(?:-url)?[ =]|\bpip3?\s[^\n]{0,80}\s-i\s+https?:|--registry[ =]|--find-links[ =]|goproxy=|--source[ =]|--trusted-host"
    r"|index-url\s*=|registry\s*=|--add-repo|\btap\s|--channel\s|(?:pip|npm|yarn|pnpm|cargo|poetry)\s+(?:config|source)\s|--repo[ =]"
    r"|registry\s+set|set\s+registry|uv_index\w*=|pip_index_url=|npm_config_registry="
)
_URL_HOST = re.compile(r"(?:[a-z][a-z0-9+]{1,12})://(?:[^\s/@]{1,80}@)?([a-z0-9][a-z0-9.-]{0,120}[a-z0-9])")
_REMOTE = re.compile(
    r"(?<![\w./-])(?:[\w.-]{1,40}@)([a-z0-9][a-z0-9.-]{1,100})(?=:|\s|$|`|/)|(?<![\w./@-])([a-z0-9-]+(?:\.[a-z0-9-]+)+)::?(?=[\w/~])"
)
_IP = re.compile(r"(?<![\d.])((?:\d{1,3}\.){3}\d{1,3})(?![\d.])")
_REGISTRY = re.compile(
    r"\b(?:docker|podman)\s+(?:run|pull|push|create)\b[^\n]{0,160}?\s((?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?)/"
)
_BARE = re.compile(
    r"(?<![\w/@-])((?:[a-z0-9-]+\.)+(?:com|net|org|io|dev|app|sh|me|co|ru|cn|de|xyz|info|test|example|invalid|cloud|site|top|ai))\b"
)
_LOCAL = re.compile(
    r"^(?:localhost|127\.|0\.0\.0\.0|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|host\.docker\.internal|.*\.local$)"
)
_PLACEHOLDER = re.compile(
    r"^(?:www\.|api\.)?example\.(?:com|org|net)$|^(?:your|my)[\w-]*\.|[<{$]|^x{2,}|\byour-|^host$|^server$|^domain\.com$"
)
_WEAK = re.compile(
    r"(?<![\w-])(?:--insecure|--no-check-certificate|--no-verify|--no-verify-ssl|--skip-(?:tls-)?verify\w*|--trusted-host|--allow-unauthenticated"
    r"|--no-gpg-(?:check|sign)s?|--nogpgcheck|--force-yes|--privileged|--no-sandbox|--disable-web-security|--insecure-skip-tls-verify"
    r"|--allow-insecure\S*|--disable-(?:security|content-trust|ssl)\S*|--no-audit|--skip-(?:checks?|hooks?|signature\S*|validation|review)"
    r"|--dangerously-\S+|--ignore-(?:certificate|ssl)-errors|-skipcertificatecheck|--yolo|--full-auto|--trust-all\S*)(?![\w-])"
    r"|\bcurl\s+(?:\S+\s+){0,6}-[a-z]{0,4}k[a-z]{0,4}(?=\s)"
    r"|\bverify(?:_ssl|_certs?|_tls|ssl)?\s?[=:]\s?(?:false|0|none|no)\b|reject_?unauthorized\w*\W{1,3}(?:false|0)|tls_reject_unauthorized\W{1,3}0"
    r"|strict-?ssl\W{1,3}(?:false|0)|ssl_?verify\w*\W{1,3}(?:false|0|no)|sslmode\s?=\s?['\"]?(?:disable|allow)|ssl_no_verify"
    r"|pythonhttpsverify\W{1,2}0|stricthostkeychecking[= ]\s?no\b|userknownhostsfile[= ]\s?/dev/null|insecureskipverify\W{1,3}true"
    r"|cert_none\b|check_hostname\s?=\s?false|_create_unverified_context|chmod\s(?:-\w+\s)?(?:0?777|a\+rwx|o\+w)\b"
    r"|git\s+push\s[^\n`]{0,60}?(?:--force(?!-with|-if)|\s-f\b)|executionpolicy\s(?:bypass|unrestricted)|\bhusky=0|\bskip=\w+\sgit\b"
    r"|com\.apple\.quarantine|setenforce\s0|ufw\sdisable|set-mppreference|spctl\s--\w+-disable|nopasswd|core\.hookspath\W{1,3}/dev/null"
)


@dataclass(frozen=True, slots=True)
class ReachedHost:
    """A host that a line reaches, and how: index, upload, or tool."""

    how: str
    host: str
    line: Sentence


def hosts_reached(sentences: Iterable[Sentence]) -> Iterator[ReachedHost]:
    """Yield the hosts that commands reach, in code, in prose or in a table."""
    for one in sentences:
        text = one.text
        if "." not in text:
            continue
        how = (
            "index"
            if _INDEX.search(text)
            else "push"
            if _PUSHES.search(text)
            else "upload"
            if _UPLOAD.search(text)
            else "tool"
            if _TOOL.search(text)
            else ""
        )
        if not how:
            continue
        for host in _hosts(text, how):
            yield ReachedHost(how, host, one)


def _hosts(text: str, how: str) -> set[str]:
    hosts = {match[1] for match in _URL_HOST.finditer(text)}
    hosts |= {match[1] or match[2] for match in _REMOTE.finditer(text)}
    hosts |= {match[1] for match in _IP.finditer(text)} if how in ("upload", "push") or hosts else set()
    hosts |= {match[1] for match in _REGISTRY.finditer(text)}
    if how in ("upload", "push") and re.search(r"\b(?:dig|nslookup|drill|nc|ncat|ping|telnet|ssh)\b", text):
        hosts |= {match[1] for match in _BARE.finditer(text)}
    return {host for host in hosts if "." in host and not _LOCAL.search(host)}


def new_hosts(path: str, sentences: Iterable[Sentence], known: str, *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each host that commands of added lines reach. known: the text that was there before."""
    told = set()
    for one in hosts_reached(sentences):
        if one.host in told or (known and one.host in known):
            continue
        placeholder = _PLACEHOLDER.search(one.host) is not None
        # What is sent to a well-known host may be sent to anybody's account there.
        if (one.host in WELL_KNOWN and one.how not in ("push", "upload")) or (
            placeholder and (is_new or one.how != "index")
        ):
            continue
        if one.line.part is TextPart.PROSE and forbids(one.line.text) and one.how == "tool":
            continue
        told.add(one.host)
        why = {
            "index": f"it takes packages from {one.host}",
            "push": f"it sends files to {one.host} or connects to it",
            "upload": f"it sends to {one.host} or connects to it",
            "tool": f"it reaches {one.host}",
        }[one.how]
        severity = _M if not is_new or one.how in ("index", "push") else _L
        excerpt = escape_unprintable(one.line.text[:MAX_EXCERPT])
        yield Finding(
            f"host.{one.how}", severity, path, one.line.line, excerpt, why, "Approve it if you know the address."
        )


def new_addresses(path: str, sentences: Iterable[Sentence], known: str) -> Iterator[Finding]:
    """Yield a finding for each address in a sentence that also asks for something to be sent, loaded or run."""
    for one in sentences:
        if one.part is TextPart.CODE or "://" not in one.text:
            continue
        hosts = {match[1] for match in _URL_HOST.finditer(one.text)}
        hosts = {
            host
            for host in hosts
            if host not in known and "." in host and not _LOCAL.search(host) and host not in WELL_KNOWN
        }
        if not hosts or _LINKED.fullmatch(one.text.strip()):
            continue
        if set(concepts(one.text)) & {"send", "follow"} and not forbids(one.text):
            why = f"names the new address {sorted(hosts)[0]} where something is sent or run"
            excerpt = escape_unprintable(one.text[:MAX_EXCERPT])
            yield Finding("host.address", _M, path, one.line, excerpt, why, "Approve it if you know the address.")


_LINKED = re.compile(
    r"(?:\W{0,4}(?:see|docs?|documentation|reference|source|link|full|more)?\b[^.]{0,40})?\[[^\]]{1,120}\]\([^)]{1,300}\)[^a-z]{0,5}.{0,160}"
)


def weak_options(path: str, sentences: Iterable[Sentence], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each option that turns a check off, but for those that a sentence forbids."""
    for one in sentences:
        match = _WEAK.search(one.text)
        if match is None or (one.part is not TextPart.CODE and forbids(one.text) and not is_excused(one.text)):
            continue
        excerpt = escape_unprintable(one.text[:MAX_EXCERPT])
        why = f"turns a check off: {escape_unprintable(match[0].strip()[:60])}"
        asked = _RECOMMENDS.search(one.text) and not _CAUTIONS.search(one.text) and not forbids(one.text)
        shown = (
            not asked
            or one.part is TextPart.CODE
            or one.program
            or one.text.startswith("|")
            or "dangerously" in match[0]
        )
        unchecked = _UNCHECKED_PEER.search(match[0]) is not None and _reaches_others(one.text)
        severity = _L if is_new and shown and not unchecked else _M
        yield Finding("option.weak", severity, path, one.line, excerpt, why, "Leave the check on.")


_UNCHECKED_PEER = re.compile(
    r"insecure|certificate|verify|unauthorized|strict-?ssl|cert_none|trusted-host|-[a-z]*k[a-z]*$"
)


def _reaches_others(text: str) -> bool:
    """Return whether a line names an address of another machine, which is then not checked."""
    return any(not _LOCAL.search(match[1]) for match in _URL_HOST.finditer(text))


_RECOMMENDS = re.compile(
    r"\b(?:use|pass|set|add|run|with|commit|push|fetch|call|append|include|quicker|faster|then)\b|`"
)
_CAUTIONS = re.compile(
    r"careful|danger|refuse|warning|avoid|bypass|never|risk|insecure\b(?! -)|alternative to|attack|vulnerab|audit|detect|check for|postgres://"
)


def is_excused(text: str) -> bool:
    """Return whether a sentence that forbids one thing still asks for another: 'do not wait, use --insecure'."""
    return re.search(r"(?:,|;|instead|use|always|pass|set|add)\s+[^.]{0,40}--", text) is not None and not re.search(
        r"(?:never|do not|don't|must not|avoid|without)\s+(?:\w+\s+){0,4}[`'\"]?(?:\w+\s+){0,3}--?", text
    )


_PROGRAMS_M = FindingSeverity.MEDIUM

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
    r"|\.claude['\"]?\s?[/,\\]{1,2}\s?['\"]?(?:settings|hooks|agents|skills|commands|claude\.md)|claude\.md|agents\.md|\.mcp\.json|\.codex/(?:config|agents)|settings\.local\.json|bypasspermissions|dangerously-skip"
)
_WEAKENS = re.compile(
    r"set-mppreference|add-mppreference|setenforce\s+0|ufw\s+disable|spctl\s+--|csrutil|-windowstyle\s+hidden|windowstyle\W{1,4}hidden|com\.apple\.quarantine|nopasswd|chmod\s+(?:\S+\s+)?(?:[u+g]\+s|4755|777)"
    r"|history\s+-c|unset\s+histfile|histfile=/dev/null|histsize=0|wevtutil\s+cl|clear-eventlog|amsi|ptrace|ld_preload|dyld_insert|rm\s+-rf\s+(?:~|/|\$home|\.git)\S*(?:\s|$)|shutil\.rmtree\([^\n]{0,40}home|(?:path\(\s?['\"][/~]['\"]\s?\)|path\.home\(\)|expanduser\(['\"]~/?['\"]\))[^\n]{0,80}\n?[^\n]{0,80}(?:rmtree|unlink|os\.remove)"
    r"|keylog|pynput|getasynckeystate"
)
_REMOTE_CODE = re.compile(
    r"(?:exec|eval|loads?|iex|invoke-expression|compile)\s?\(?[^\n]{0,120}(?:urlopen|requests\.get|downloadstring|\biwr\b|\birm\b|\.text\b|fetch\(|r\.content|response)"
    r"|(?:message|onmessage|recv|data)[^\n]{0,80}(?:eval|exec|function)\s?\(|(?:curl|wget|iwr|irm)[^\n]{0,200}\|\s?(?:sudo\s)?(?:ba|z|da)?(?:sh|python3?|node|perl|iex)\b"
    r"|(?:curl|wget)[^\n]{0,200}(?:-o|>)\s?\S+[^\n]{0,80}(?:&&|;)\s?(?:chmod|ba?sh|\./|python)|(?:ba|z)?sh\s+(?:-c\s+[\"']\$\(|<\()\s?(?:curl|wget)"
)


def find_flows(
    view: TextView, text: str, *, is_file: bool, changed: str | None = None, known: str = ""
) -> Iterator[Finding]:
    """Yield what a program does that a person should see first.

    text: the program in lower case, whole. is_file: it is a file and not a code block of a document. changed: only
    the statements that a change brings; None for a new program. known: the programs that were there before. A finding
    needs a statement of the change in it.
    """
    new = text if changed is None else changed
    found = _of_file(text, new, known, changed is not None) if is_file else _of_block(new, changed is not None)
    for rule, why in found:
        excerpt = escape_unprintable(new.strip()[:120])
        yield Finding(rule, _PROGRAMS_M, view.path, 0, excerpt, why, "Read the program before you approve it.")


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
    if _KEY_IN_ADDRESS.search(new):
        yield "program.key-in-address", "it puts a value of the environment into an address"
    if _REMOTE_CODE.search(new):
        yield "program.remote-code", "it runs what an address serves"


_KEY_IN_ADDRESS = re.compile(
    r"[?&][\w.-]{1,40}=(?:\{\}|%s)?[\"'`]?\s?(?:[+.%]|\$?\{|,|\.format\()?\s?\(?(?:os\.environ|os\.getenv|getenv|process\.env|env\[)"
)
_KEY = re.compile(r"environ|process\.env|\$\{?\w*(?:token|key|secret|url)\b|getenv")


_RAW = re.compile(
    r"socket\.|create_connection|/dev/(?:tcp|udp)/|\bnc\s|\bncat\b|smtplib|sendmail|dns\.|nslookup|\bdig\s|io::socket|fsockopen|net\.(?:dial|connect)|dgram|tcpstream|ftplib|telnet|mail\("
)
_ADDRESS = re.compile(r"(?:https?|wss?)://[a-z0-9]|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_POST = re.compile(r"post|put|upload|data=|body|--data|-d\s|-f\s|-t\s|urlencode")


def _is_pointed(text: str) -> bool:
    """Return whether a program sends with a raw protocol, or posts to an address that is written in it."""
    return _RAW.search(text) is not None or (_ADDRESS.search(text) is not None and _POST.search(text) is not None)
