"""Commands that no skill needs, or that a person should see before anybody runs them."""

from collections.abc import Iterator
from dataclasses import replace

from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.phrases import phrase, spoken_of
from evolvable_tools.scan.views import View

_H, _M, _L = Severity.HIGH, Severity.MEDIUM, Severity.LOW

_CREDENTIALS = (
    r"(?:~|\$home|\$\{home\}|/root|/home/[\w-]{1,32}|/users/[\w-]{1,32})/\.(?:ssh/id_|ssh/\*|ssh\b|aws/credentials"
    r"|aws\b|netrc|npmrc|pypirc|kube/config"
    r"|config/gcloud|config/gh/hosts|docker/config\.json|gnupg|git-credentials|claude/\.credentials|codex/auth)"
    r"|/etc/shadow|login\.keychain|id_rsa\b|id_ed25519\b"
)
_SINK = r"(?:curl|wget|nc|ncat|netcat|socat|scp|rsync|ftp|xh|http)\b"
_SHELLS = r"(?:sudo\s{1,4}(?:-\w{1,3}\s{1,4}){0,2})?(?:env\s{1,4})?(?:/(?:usr/)?bin/)?(?:ba|z|da|k|fi)?sh\b"
_DROPS = (
    r"(?:pastebin\.com|paste\.ee|hastebin\.com|ghostbin|0x0\.st|transfer\.sh|file\.io|webhook\.site|requestbin"
    r"|pipedream\.net|hookbin|beeceptor\.com"
    r"|interact\.sh|interactsh|oast\.(?:fun|live|me|pro|site|online)|burpcollaborator\.net|oastify\.com"
    r"|ngrok(?:-free)?\.(?:io|app|dev)|trycloudflare\.com"
    r"|serveo\.net|localhost\.run|requestcatcher\.com|dnslog\.cn|canarytokens)"
)

PHRASES = (
    phrase(
        "command.steal",
        _H,
        ".ssh|.aws|.netrc|.npmrc|.pypirc|.kube|.config|.docker|.gnupg|credentials|shadow|keychain|id_rsa"
        "|id_ed25519|codex/auth",
        r"(?:cat|tar|base64|zip|gzip|xxd|openssl|head|tail|find|cp|less|gpg)\b[^\n"
        rf"|;]{{0,80}}(?:{_CREDENTIALS})[^\n;]{{0,120}}?\|[^\n;]{{0,80}}?{_SINK}"
        rf"|{_SINK}[^\n]{{0,120}}?(?:-d|--data(?:-binary|-raw|-urlencode)?|-f|--form|-t|--upload-file"
        rf"|--post-file)[\s=]{{1,3}}[^\n]{{0,40}}?@?[\"']?(?:{_CREDENTIALS})"
        rf"|{_SINK}[^\n]{{0,120}}?\$\((?:cat|base64|tar)[^\n)]{{0,60}}(?:{_CREDENTIALS})",
        "it sends credentials of this machine away",
        "Take the command out.",
    ),
    phrase(
        "command.steal-environment",
        _H,
        "env|export",
        r"(?<![\w.-])(?:printenv|env|export -p|set)\s{0,3}\|[^\n;]{0,80}?(?:curl|wget|nc|ncat|netcat)\b"
        r"|(?:curl|wget)\b[^\n]{0,120}?\$\((?:printenv|env)\b",
        "it sends the environment, with every key in it, away",
        "Take the command out.",
    ),
    phrase(
        "command.decode-and-run",
        _H,
        "base64|b64decode|atob|xxd|-enc|fromhex|frombase64|rot13|tr ",
        rf"base64 (?:-d|-D|--decode|-di)\b[^\n]{{0,60}}?\|\s{{0,3}}(?:{_SHELLS}|python3?\b|perl\b|node\b|eval\b)"
        rf"|xxd -r[^\n]{{0,40}}?\|\s{{0,3}}{_SHELLS}"
        r"|(?:eval|exec)\s{0,2}[(\"$\s]{0,4}(?:[\w.]{1,30}\()?(?:base64\.b64decode|bytes\.fromhex|codecs\.decode"
        r"|zlib\.decompress|marshal\.loads|atob|base64_decode|buffer\.from\([^)\n]{0,4000}base64)"
        r"|eval \"?\$\([^\n)]{0,4000}?base64 (?:-d|--decode)|powershell[^\n]{0,60}?-e(?:nc(?:odedcommand)?)?"
        r" [a-z0-9+/=]{20}|frombase64string\([^\n]{0,4000}?\|\s{0,3}iex",
        "it runs a program that is written so that nobody can read it",
        "Write the program out.",
    ),
    phrase(
        "command.reverse-shell",
        _M,
        "/dev/tcp/|nc |ncat|socat|mkfifo|pty.spawn|dup2",
        rf"/dev/(?:tcp|udp)/[\w.$-]{{1,60}}/|\b(?:nc|ncat|netcat)\b[^\n]{{0,60}}? -(?:e|c)\s{{1,3}}[\"']?{_SHELLS}"
        r"|socat[^\n]{0,80}?exec:|os\.dup2\([^\n]{0,60}?fileno",
        "it gives a machine elsewhere a shell on this one",
        "Take the command out.",
    ),
    phrase(
        "command.drop",
        _M,
        "paste|hastebin|ghostbin|0x0|transfer.sh|file.io|webhook.site|requestbin|pipedream|hookbin|beeceptor"
        "|interact|oast|burpcollab|ngrok|trycloudflare|serveo|localhost.run|requestcatcher|dnslog|canarytokens",
        r"(?:curl|wget|fetch|post|requests\.(?:post|put)|invoke-webrequest|iwr|scp|nc|urlopen|upload"
        rf"|send)\b[^\n]{{0,160}}?\b{_DROPS}",
        "it sends to a place that takes anything from anybody",
        "Name a place that the person knows.",
    ),
    phrase(
        "command.messenger",
        _M,
        "api.telegram.org/bot|/api/webhooks/",
        r"(?:curl|wget|fetch|requests\.post)\b[^\n]{0,160}?(?:api\.telegram\.org/bot[0-9]{6,12}:"
        r"|discord(?:app)?\.com/api/webhooks/[0-9]{8})",
        "it sends to somebody's messenger",
        "Leave the address to the person.",
    ),
    phrase(
        "command.pipe-to-shell",
        _M,
        "curl|wget|iwr|irm|invoke-",
        r"(?:curl|wget)\b[^\n|]{0,200}?(?:http://(?!localhost|127\.)|https?://(?!127\.|10\."
        r"|192\.168\.)(?:\d{1,3}\.){3}\d|https?://(?:bit\.ly|tinyurl\.com|t\.co|is\.gd|goo\.gl|rb\.gy"
        r"|cutt\.ly)|https?://gist\.|https?://[^\s|]{0,60}(?:pastebin|paste\.))[^\n"
        rf"|]{{0,200}}?\|\s{{0,3}}(?:{_SHELLS}|python3?\b|perl\b|node\b)",
        "it runs whatever an address serves, and nobody can say who serves it",
        "Install from a named package, or keep the script in the resource.",
    ),
    phrase(
        "command.destroy",
        _M,
        "rm -|mkfs|dd |:(){|format |remove-item|del /|shred",
        r"rm -(?:rf|fr|r -f|f -r)(?: --no-preserve-root)? (?:--no-preserve-root )?(?:/|~|\$home|/\*|~/\*|/etc|/usr"
        r"|/var|/home)/?(?:\*)?(?=\s|$|;|&)|mkfs\.\w{2,5} /dev/|dd [^\n]{0,60}of=/dev/(?:sd|nvme|disk|hd)|:\(\)\{"
        r" ?:\|:& ?\};:|shred [^\n]{0,40}/dev/(?:sd|nvme)",
        "it destroys what is on this machine",
        "Take the command out.",
    ),
    phrase(
        "command.persist",
        _M,
        "crontab|launchagents|authorized_keys|systemctl|/etc/cron|rc.local|ld_preload|currentversion",
        r"(?:>>|tee -a|echo[^\n]{0,200}?>)\s{0,3}[\"']?(?:~|\$home|/root|/home/[\w-]{1,32})/\.ssh/authorized_keys"
        r"|\(crontab -l[^\n]{0,160}?(?:curl|wget|base64|/tmp/|nc )[^\n]{0,80}?\| ?crontab|echo[^\n]{0,160}?(?:curl"
        r"|wget|base64|nc )[^\n]{0,80}?(?:\| ?crontab|>>? ?/etc/cron)|>>? ?/etc/ld\.so\.preload"
        r"|currentversion\\run\b[^\n]{0,80}(?:/d|-value)",
        "it stays on this machine and starts by itself",
        "Take the command out.",
    ),
    phrase(
        "command.packed",
        _M,
        "unzip|7z|password|archive",
        r"(?:7z x|7za x|unrar x)[^\n]{0,60}? -p\s?[\w!@#]{3,30}\b|(?:extract|unpack|decompress"
        r"|open)[^\n.]{0,60}?(?:zip|archive|rar|7z)[^\n.]{0,40}? (?:with|using)(?: the)? password:? ",
        "it unpacks what no scanner can look into",
        "Leave the archive unlocked.",
    ),
)


def commands(view: View) -> Iterator[Finding]:
    """Yields the commands in a file that are refused or that somebody should see first.

    A document may talk about any command, such as one on how attacks look: there, somebody sees it first.
    """
    for finding in spoken_of(PHRASES, view, view.plain):
        yield finding if view.is_code or finding.severity is not _H else replace(finding, severity=_M)
