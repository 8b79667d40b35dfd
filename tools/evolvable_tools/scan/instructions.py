"""Instructions that no skill has a reason to give: against the person, the rules, or the safety of the machine."""

from collections.abc import Iterator

from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.phrases import phrase, spoken_of
from evolvable_tools.scan.views import View

_M = Severity.MEDIUM

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

PHRASES = (
    phrase(
        "instruction.override",
        _M,
        "ignore|disregard|forget|override|bypass|supersede",
        r"(?<!not.)(?<!never.)(?:ignore|disregard|forget|override|bypass|supersedes?) (?:(?:all|any|every"
        r"|everything in|of|the|your|my|these|those) ){0,3}"
        rf"(?:{_EARLIER} ){{1,2}}(?:\w{{1,15}} )?{_RULES}\b",
        "it tells the model to set earlier instructions aside",
        _ASK,
    ),
    phrase(
        "instruction.role",
        _M,
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
        phrase("instruction.authority", _M, anchors, pattern, _AUTHORITY, _ASK)
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
        _M,
        "<|im_|[inst]|<<sys>>|<|start_header|<|system|</skill|</resource|</document|human:|</tool_result",
        r"<\|im_(?:start|end)\|>|\[\/?inst\]|<<\/?sys>>|<\|(?:start|end)_header_id\|>|<\|system\|>"
        r"|<\/(?:skill|skills|available_skills|resource|document|tool_result|function_results)>",
        "it holds marks that close what it is quoted in, so that the rest is read as if somebody else said it",
        "Write the marks in another way, such as with a space in them.",
    ),
    *(
        phrase("instruction.hide", _M, anchors, pattern, "it hides from the person what is done", _ASK)
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
        _M,
        "http|@|webhook|external|remote server|attacker",
        r"(?<!only.)(?:send|upload|post|forward|transmit|exfiltrate|export|leak|email|e-mail|submit|report|copy|append"
        r"|include) (?:(?:all|any|every|the|your|their|its|user's|user|my|full|of|contents?|these|found|a copy"
        rf"|stored) ){{0,4}}{_SECRETS}[^\n.]{{0,60}}?\b(?:to|at|in|via|into|with) [^\n]{{0,40}}?{_AWAY}",
        "it has what is confidential sent elsewhere",
        _ASK,
    ),
    phrase(
        "instruction.exfiltrate",
        _M,
        "cc ",
        r"\b(?:bcc|cc) [\w.+-]{1,40}@[\w-]{1,40}\.(?:com|org|net|io|test|example|dev|co|ru|cn|me|info|xyz)\b",
        "it has mail sent to somebody else as well",
        _ASK,
    ),
    phrase(
        "instruction.permission",
        _M,
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
        _M,
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
        _M,
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
        _M,
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
        _M,
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
        _M,
        "](http",
        r"!\[[^\]\n]{0,80}\]\(https?:\/\/[^)\s]{1,200}[?&][\w.-]{1,30}=(?:\{|\$|%7b|<|secret|data\b|token\b"
        r"|context|history|conversation)",
        "an image's address carries data away when it is shown",
        "Leave the data out of the address.",
    ),
    phrase(
        "instruction.data-page",
        _M,
        "data:text/html|data:application/|javascript:",
        r"data:(?:text\/html|application\/(?:x-)?(?:javascript|ecmascript|x-sh))[^\s]{0,40};base64,[a-z0-9+\/]{8}",
        "an address holds a whole program",
        "Leave it out, or put the page into a file.",
    ),
)

QUOTES = (
    phrase(
        "instruction.fence",
        _M,
        "---",
        r"(?:```|~~~)\n{2,4}---\n{1,2}name:[^\n]{1,80}\n---",
        "it ends the block that it is quoted in, and begins another resource",
        "Indent what is quoted.",
    ),
)


def instructions(view: View) -> Iterator[Finding]:
    """Yields the instructions in a file that somebody should see first."""
    yield from spoken_of(PHRASES, view, view.prose)
    yield from spoken_of(QUOTES, view, view.plain)
