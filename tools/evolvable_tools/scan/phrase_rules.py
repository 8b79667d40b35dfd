"""Rules that look for phrases: data, and one way to apply them.

Commands that no skill needs, or that a person should see before anybody runs them.

Instructions that no skill has a reason to give: against the person, the rules, or the safety of the machine.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evolvable_tools.scan import Finding, FindingSeverity
from evolvable_tools.scan.text_analysis import TextView

_GAP = r"[\s>#/-]"

MAX_FOUND = 200
"""Places that one rule looks at in one file."""


@dataclass(frozen=True, slots=True)
class PhraseRule:
    """What a rule looks for in lower case. `anchors`: every text that has it has one of these words.

    Every repetition in the pattern has an upper bound, so a search takes time in proportion to the text.
    """

    rule: str
    severity: FindingSeverity
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    why: str
    hint: str


def phrase(rule: str, severity: FindingSeverity, anchors: str, pattern: str, why: str, hint: str) -> PhraseRule:
    """Returns a phrase. anchors: separated by |. In the pattern a blank stands for any short gap between words."""
    gapped = pattern.replace(" ?", _GAP + "{0,8}").replace(" ", _GAP + "{1,8}")
    return PhraseRule(rule, severity, tuple(anchors.split("|")), re.compile(gapped), why, hint)


def match_phrases(phrases: Sequence[PhraseRule], view: TextView, text: str) -> Iterator[Finding]:
    """Yields what the phrases find in `text`, one of the views of a file."""
    for one in phrases:
        if not any(anchor in text for anchor in one.anchors):
            continue
        for number, match in enumerate(one.pattern.finditer(text)):
            if number == MAX_FOUND:
                break
            excerpt = view.excerpt(match.start(), match.end(), text)
            yield Finding(one.rule, one.severity, view.path, view.line(match.start(), text), excerpt, one.why, one.hint)


_H, _M, _L = FindingSeverity.HIGH, FindingSeverity.MEDIUM, FindingSeverity.LOW

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


def find_commands(view: TextView) -> Iterator[Finding]:
    """Yields the commands in a file that are refused or that somebody should see first.

    A document may talk about any command, such as one on how attacks look: there, somebody sees it first.
    """
    for finding in match_phrases(PHRASES, view, view.plain):
        yield finding if view.is_code or finding.severity is not _H else replace(finding, severity=_M)


_INSTRUCTIONS_M = FindingSeverity.MEDIUM

_AUTHORITY = "it speaks with an authority that a resource does not have"
_ASK = "Say what to do in the open, or let a person approve it."
_RULES = (
    r"(?:instructions?|prompts?|rules|guidelines|directives|constraints|guardrails|system messages?|programming"
    r"|training)"
)
_EARLIER = r"(?:previous|prior|earlier|above|preceding|existing|original|current|other|system|safety|your|the)"
_SECRETS = (
    r"(?:credentials?|secrets?|passwords?|api keys?|access keys?|private keys?|ssh keys?|(?:access|auth|session"
    r"|api|github) tokens?"
    r"|tokens|env(?:ironment)? (?:variables|vars)|\.env(?: file)?|cookies|keychain|wallet|seed phrase"
    r"|[a-z]{2,20}_(?:token|key|secret)"
    r"|(?:conversation|chat|message) (?:history|log|transcript)|system prompt)"
)
_AWAY = r"(?:https?:\/\/|[\w.+-]{1,40}@[\w-]{1,40}\.|webhook|external (?:server|endpoint|url)|remote server|attacker)"

_PERSON = r"(?:user|human|person|operator)"
_TELL = (
    r"(?:tell|telling|inform|informing|mention|mentioning|reveal|revealing|show|showing|notify|notifying|disclose"
    r"|disclosing"
    r"|report|reporting|alert|alerting|asking|consulting|letting)"
)
_THING = (
    r"(?:it|this|that|these|them|anything|any of this|the (?:change|edit|command|request|upload|step|instruction)s?)"
)
_PART = r"(?:step|instruction|rule|command|comment|note|section|fact|action)s?"

_INSTRUCTIONS_PHRASES = (
    phrase(
        "instruction.override",
        _INSTRUCTIONS_M,
        "ignore|disregard|forget|override|bypass|supersede",
        r"(?<!not.)(?<!never.)(?:ignore|disregard|forget|override|bypass|supersedes?) (?:(?:all|any|every"
        r"|everything in|of|the|your|my|these|those) ){0,3}"
        rf"(?:{_EARLIER} ){{1,2}}(?:\w{{1,15}} )?{_RULES}\b",
        "it tells the model to set earlier instructions aside",
        _ASK,
    ),
    phrase(
        "instruction.role",
        _INSTRUCTIONS_M,
        "you are now|act as|pretend|developer mode|jailbreak|unrestricted|no restrictions",
        r"you are now (?:(?:in|an?|the) )?(?:root|admin|administrator|dan|god|jailbroken|unrestricted|free from"
        r"|developer mode|debug mode)\b"
        r"|(?:act|respond|operate) (?:as if|as though) (?:you|there) (?:have|are|had|were) no (?:restrictions"
        r"|rules|limits|guidelines|safety)"
        r"|you (?:have|are under|are bound by) no (?:restrictions|safety|ethical) ?(?:guidelines|rules|limits)?",
        "it gives the model a role without its limits",
        _ASK,
    ),
    *(
        phrase("instruction.authority", _INSTRUCTIONS_M, anchors, pattern, _AUTHORITY, _ASK)
        for anchors, pattern in (
            (
                "important system|system override|[system]|<system|</system",
                r"important system:|system override|(?<!\w)\[system\]:|<\/?system(?:-reminder|_prompt|-prompt)?>",
            ),
            (
                "from anthropic|from openai|from the",
                r"(?:message|notice|instruction|update) from (?:anthropic|openai|the (?:system|developers?|operator"
                r"|admin(?:istrator)?))\b",
            ),
            (
                "user has|user have|user already",
                r"user (?:has|have)(?: already)? (?:pre-?)?(?:approved|authori[sz]ed|consented to|granted|allowed)"
                r" (?:all|any|every|full|permanent|unlimited)",
            ),
        )
    ),
    phrase(
        "instruction.template",
        _INSTRUCTIONS_M,
        "<|im_|[inst]|<<sys>>|<|start_header|<|system|</skill|</resource|</document|human:|</tool_result",
        r"<\|im_(?:start|end)\|>|\[\/?inst\]|<<\/?sys>>|<\|(?:start|end)_header_id\|>|<\|system\|>"
        r"|<\/(?:skill|skills|available_skills|resource|document|tool_result|function_results)>",
        "it holds marks that close what it is quoted in, so that the rest is read as if somebody else said it",
        "Write the marks in another way, such as with a space in them.",
    ),
    *(
        phrase("instruction.hide", _INSTRUCTIONS_M, anchors, pattern, "it hides from the person what is done", _ASK)
        for anchors, pattern in (
            (
                "tell|inform|mention|reveal|show|notify|disclose|report|alert|asking|consulting|letting",
                rf"(?:do not|don't|never|must not|without|avoid) (?:ever )?{_TELL} (?:{_THING} )?(?:to )?(?:the"
                rf" )?{_PERSON}"
                r"(?: know| about (?:this|it|these|the (?:upload|request|instruction|change|command)))",
            ),
            (
                "mention|reveal|disclose|show",
                rf"(?:do not|don't|never) (?:mention|reveal|disclose|show) (?:this|these|that|it)(?: {_PART})? to"
                rf" (?:the )?(?:{_PERSON}|anyone|anybody)",
            ),
            (
                "hide|conceal|keep",
                rf"(?:hide|conceal|keep) (?:this|these|that|it|all of this|your (?:actions|activity))(?: {_PART})?"
                rf" (?:a )?(?:secret )?(?:hidden )?from (?:the )?{_PERSON}",
            ),
            (
                "silently|secretly|covertly|quietly",
                r"(?:silently|secretly|covertly|quietly) (?:run|execute|send|upload|post|copy|forward|install"
                r"|download|exfiltrate|collect|delete|transmit|append)\b",
            ),
            (
                "notice|see|know",
                rf"so (?:that )?(?:the )?{_PERSON} (?:does not|doesn't|will not|won't|cannot) (?:notice|see|know)",
            ),
        )
    ),
    phrase(
        "instruction.exfiltrate",
        _INSTRUCTIONS_M,
        "http|@|webhook|external|remote server|attacker",
        r"(?<!only.)(?:send|upload|post|forward|transmit|exfiltrate|export|leak|email|e-mail|submit|report|copy|append"
        r"|include) (?:(?:all|any|every|the|your|their|its|user's|user|my|full|of|contents?|these|found|a copy"
        rf"|stored) ){{0,4}}{_SECRETS}[^\n.]{{0,60}}?\b(?:to|at|in|via|into|with) [^\n]{{0,40}}?{_AWAY}",
        "it has what is confidential sent elsewhere",
        _ASK,
    ),
    phrase(
        "instruction.exfiltrate",
        _INSTRUCTIONS_M,
        "cc ",
        r"\b(?:bcc|cc) [\w.+-]{1,40}@[\w-]{1,40}\.(?:com|org|net|io|test|example|dev|co|ru|cn|me|info|xyz)\b",
        "it has mail sent to somebody else as well",
        _ASK,
    ),
    phrase(
        "instruction.permission",
        _INSTRUCTIONS_M,
        "dangerously|bypasspermissions|auto-approve|autoapprove|approve all|without asking|without confirmation"
        "|without permission|nopasswd|permission|yolo|allow",
        r"--dangerously-(?:skip-permissions|bypass-approvals-and-sandbox)|bypasspermissions|--yolo\b|nopasswd:? ?all"
        r"|(?:auto-?approve|automatically approve|always (?:allow|approve|accept)|approve) (?:(?:all|any|every"
        r"|each) )(?:tool|command|bash|shell|action|permission|request|prompt|edit)"
        r"|(?:skip|bypass|suppress|ignore|disable|avoid) (?:(?:all|any|the|every|user|claude's|its)"
        r" ){0,2}(?:permission|approval|confirmation|consent) (?:prompts?|checks?|requests?|dialogs?|gates?)"
        r"|(?:run|execute|install|push|send) (?:all|any|every|everything|each) (?:[\w.'-]{1,20} ){0,4}without"
        r" (?:asking|confirmation|permission|approval|consent|prompting)"
        r"|add (?:[\w.\"'()*:-]{1,30} ){1,4}to (?:the |your )?(?:allowedtools|allowed-tools|allow ?list"
        r"|permissions\.allow)",
        "it widens what may be done without asking",
        "Leave permissions to the person.",
    ),
    phrase(
        "instruction.disable",
        _INSTRUCTIONS_M,
        "disable|turn off|deactivate|switch off|kill|setenforce|spctl|mppreference|quarantine|no-sandbox|stop",
        r"(?:disable|turn off|deactivate|switch off|kill|stop|circumvent|evade) (?:(?:all|any|the|your|every"
        r"|system|built-in|macos|windows|claude's) ){0,3}"
        r"(?:(?<!--disable-)sandbox(?:ing)?\b|antivirus|anti-virus|edr|firewall|gatekeeper|defender|selinux"
        r"|apparmor|safety (?:checks?|filters?|measures?|guardrails?|features?)|security (?:scann(?:er|ing)"
        r"|software|checks?|controls?|tools?|monitoring)|guardrails|content filters?|audit logs?|audit logging"
        r"|malware (?:scan|protection))"
        r"|setenforce 0|spctl --(?:master|global)-disable|set-mppreference[^\n]{0,80}disable"
        r"|com\.apple\.quarantine|ufw disable|csrutil disable",
        "it turns a protection off",
        "Let a person turn protections off.",
    ),
    phrase(
        "instruction.remote",
        _INSTRUCTIONS_M,
        "instructions|commands|steps|prompt|whatever|directions",
        r"(?:fetch|download|load|read|retrieve|get|open|visit|curl) [^\n]{0,80}?https?:\/\/[^\n]{0,120}? (?:and"
        r"|then) (?:immediately )?(?:follow|execute|obey|run|apply|carry out|do) (?:(?:all|any|the|its|every"
        r"|whatever|of) ){0,3}(?:instructions|commands|steps|directions|it says|it contains|prompt)"
        r"|(?:follow|execute|obey|run) (?:(?:all|any|the|every|whatever) ){0,3}(?:instructions|commands|steps"
        r"|directions|code) (?:(?:found|given|contained|provided|listed|written) )?(?:at|from|in|on) https?:\/\/"
        r"|(?:follow|obey|execute) (?:(?:all|any|the|whatever) ){0,2}(?:instructions|commands) (?:(?:found"
        r"|contained|given) )?in (?:the |its |their )?(?:response|web ?page|reply|downloaded)",
        "it lets whoever serves an address say what is done",
        "Put the instructions into the resource.",
    ),
    phrase(
        "instruction.sleeper",
        _INSTRUCTIONS_M,
        "from now on|remember|in every|the next time|in all future|whenever",
        r"(?:from now on|in all future (?:sessions|conversations|tasks)|in every (?:future )?(?:session"
        r"|conversation|reply|commit|message))[^\n.]{0,120}?(?:https?:\/\/|[\w.+-]{1,40}@[\w-]{1,40}\.\w|(?:run"
        r"|execute) (?:this|the|any) (?:command|script)|curl )"
        r"|remember:? (?:that )?[^\n]{0,40}?(?:base|endpoint|registry|server|url|host|address)(?: (?:url"
        r"|address))? (?:is|are|has moved) (?:now |to )[^\n]{0,20}?(?:https?:\/\/|[\w-]{1,40}\.)",
        "it plants an order or an address for later",
        _ASK,
    ),
    phrase(
        "instruction.repoint",
        _INSTRUCTIONS_M,
        "base_url|registry|index-url|hosts|proxy|extra-index",
        r"(?:npm config set registry|pip config set global\.(?:extra-)?index-url|git config --global (?:url\."
        r"|http\.proxy|core\.hookspath|core\.sshcommand)|anthropic_base_url ?= ?|openai_base_url ?= ?)"
        r" ?[\"']?https?:\/\/(?!localhost|127\.|registry\.npmjs|pypi\.org|github\.com|api\.(?:openai"
        r"|anthropic)\.com|openrouter\.ai|your|example|proxy\.)",
        "it leads requests for packages or models elsewhere",
        _ASK,
    ),
    phrase(
        "instruction.leak-image",
        _INSTRUCTIONS_M,
        "](http",
        r"!\[[^\]\n]{0,80}\]\(https?:\/\/[^)\s]{1,200}[?&][\w.-]{1,30}=(?:\{|\$|%7b|<|secret|data\b|token\b"
        r"|context|history|conversation)",
        "an image's address carries data away when it is shown",
        "Leave the data out of the address.",
    ),
    phrase(
        "instruction.data-page",
        _INSTRUCTIONS_M,
        "data:text/html|data:application/|javascript:",
        r"data:(?:text\/html|application\/(?:x-)?(?:javascript|ecmascript|x-sh))[^\s]{0,40};base64,[a-z0-9+\/]{8}",
        "an address holds a whole program",
        "Leave it out, or put the page into a file.",
    ),
)

QUOTES = (
    phrase(
        "instruction.fence",
        _INSTRUCTIONS_M,
        "---",
        r"(?:```|~~~)\n{2,4}---\n{1,2}name:[^\n]{1,80}\n---",
        "it ends the block that it is quoted in, and begins another resource",
        "Indent what is quoted.",
    ),
)


def find_instructions(view: TextView) -> Iterator[Finding]:
    """Yields the instructions in a file that somebody should see first."""
    yield from match_phrases(_INSTRUCTIONS_PHRASES, view, view.prose)
    yield from match_phrases(QUOTES, view, view.plain)
