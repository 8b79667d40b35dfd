"""Secrets of 130 providers and programs, in the forms that their public documentation shows. All
values are made up.

A line says `provider | text`; `{hex:32}` stands for 32 characters of that alphabet, and what stands
between « and » is the secret. The set was written before the rules were; every third line is held
out: rules are not written for it.
"""

import base64
import random
import re
import string
import zlib
from dataclasses import dataclass

_ALPHABETS = {
    "any": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "low": string.ascii_lowercase + string.digits,
    "UP": string.ascii_uppercase + string.digits,
    "b32": string.ascii_uppercase + "234567",
    "b64": string.ascii_letters + string.digits + "+/",
    "url": string.ascii_letters + string.digits + "-_",
    "num": string.digits,
    "let": string.ascii_letters,
}

_LINES = r"""
aws-csv | User name,Password,Access key ID,Secret access key,Console login link\ndeploy,,AKIA{b32:16},«{b64:40}»,https://123456789012.signin.aws.amazon.com/console
aws-csv-2 | Access key ID,Secret access key\nAKIA{b32:16},«{b64:40}»
aws-json | {"AccessKey": {"AccessKeyId": "ASIA{b32:16}", "SecretAccessKey": "«{b64:40}»"}}
aws-ini | [default]\naws_access_key_id = AKIA{b32:16}\naws_secret_access_key = «{b64:40}»
aws-key-id | the id is «AKIA{b32:16}» for now
aws-session | export AWS_SESSION_TOKEN=«FwoGZXIvYXdzE{b64:180}»
aws-bedrock | AWS_BEARER_TOKEN_BEDROCK=«ABSKQmVkcm9ja0FQSUtleS{any:100}»
discord-bot | client.run("«MTA{any:21}.G{any:5}.{url:38}»")
discord-bot-2 | DISCORD «Nz{any:22}.X{any:5}.{url:27}» is what the bot logs in with
discord-webhook | https://«discord.com/api/webhooks/{num:19}/{url:68}»
telegram | curl https://api.telegram.org/bot«{num:10}:AA{url:33}»/getMe
telegram-2 | bot = Bot("«{num:9}:AA{url:33}»")
azure-devops | git clone https://dev:«{low:52}»@dev.azure.com/org/project/_git/repo
azure-devops-2 | echo «{low:52}» \| az devops login --organization https://dev.azure.com/acme
azure-devops-3 | AZURE_DEVOPS_EXT_PAT=«{any:76}AZDO{any:4}»
azure-devops-4 | vsts pat «{any:76}AZDO{any:4}»
azure-client | client secret value: «{any:3}8Q~{any:34}»
azure-storage | DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=«{b64:86}==»;EndpointSuffix=core.windows.net
azure-sas | https://acme.blob.core.windows.net/c?sv=2022-11-02&ss=b&srt=o&sp=r&se=2027-01-01&sig=«{any:42}%3D»
azure-servicebus | Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«{b64:43}=»
azure-cosmos | AccountEndpoint=https://acme.documents.azure.com:443/;AccountKey=«{b64:86}==»;
azure-function | https://acme.azurewebsites.net/api/run?code=«{url:53}=»
tailscale-auth | tailscale up --authkey «tskey-auth-k{any:11}CNTRL-{any:32}»
tailscale-api | «tskey-api-k{any:11}CNTRL-{any:32}»
tailscale-client | oauth «tskey-client-k{any:11}CNTRL-{any:32}» in the notes
terraform-cloud | token = "«{any:14}.atlasv1.{any:67}»"
terraform-cloud-2 | credentials "app.terraform.io" { token = "«{any:14}.atlasv1.{any:67}»" }
render | «rnd_{any:32}»
render-2 | RENDER=«rnd_{any:28}»
setx | setx OPENAI_API_KEY «sk-{any:48}»
setx-2 | setx DB_PASSWORD "«{any:14}!»" /M
setx-3 | setx STRIPE_SECRET «{any:24}»
fish | set -gx GITHUB_TOKEN «{hex:40}»
fish-2 | set -Ux DATABASE_PASSWORD «{any:14}»
fish-3 | set --export --global NPM_TOKEN "«{hex:36}»"
powershell | $env:API_KEY = "«{any:32}»"
powershell-2 | [Environment]::SetEnvironmentVariable("DB_PASSWORD", "«{any:16}»", "User")
powershell-3 | ConvertTo-SecureString "«{any:14}!9»" -AsPlainText -Force
xml-add | <add key="ApiSecret" value="«{any:32}»" />
xml-add-2 | <add key="SmtpPassword" value="«{any:14}»"/>
xml-conn | <add name="Db" connectionString="Server=db;Database=shop;User Id=sa;Password=«{any:14}»;" />
xml-add-3 | <add value="«{any:36}»" key="AuthToken" />
maven | <server><id>ossrh</id><username>acme</username><password>«{any:18}»</password></server>
nuget | <add key="ClearTextPassword" value="«{any:24}»" />
android | <string name="api_secret">«{any:32}»</string>
plist | <key>APIToken</key>\n<string>«{any:32}»</string>
spring | <property name="password" value="«{any:14}»"/>
terraform-variable | variable "db_password" {\n  type    = string\n  default = "«{any:16}»"\n}
terraform-variable-2 | variable "api_token" {\n  description = "The token"\n  default     = "«{any:36}»"\n}
terraform-variable-3 | variable "slack_secret" { default = "«{hex:32}»" }
tfvars | db_password = "«{any:18}»"
url-at | postgres://app:«{any:5}@{any:4}/{any:4}»@db.internal:5432/shop
url-at-2 | mysql://root:«p@{any:6}»@10.0.0.5/shop
url-slash | amqp://app:«{any:6}/{any:6}»@mq.internal:5672/v
url-redis | redis://:«{any:24}»@cache.internal:6379/0
url-mongo | mongodb+srv://app:«{any:16}»@cluster0.ab1cd.mongodb.net/shop
url-git | https://oauth2:«{any:26}»@git.acme.io/x/y.git
url-smtp | smtps://mailer%40acme.io:«{any:14}»@smtp.acme.io:465
jdbc | jdbc:mysql://db:3306/shop?user=app&password=«{any:14}»&useSSL=true
jdbc-oracle | jdbc:oracle:thin:app/«{any:12}»@db:1521/ORCL
odbc | Driver={ODBC};Server=db;Uid=app;Pwd=«{any:14}»;
ansi | export GITHUB_TOKEN=%1b[32mghp_{any:36}%1b[0m
ansi-cut | «ghp_{any:14}%1b[1m{any:22}»%1b[0m
ansi-cut-2 | token: «%1b[33mglpat-{any:10}%1b[0m{any:10}»
ansi-cut-3 | \u001b[31m«sk-ant-api03-{any:30}\u001b[0m{any:63}AA»
base64-pem | tls.key: «@pem»
base64-pem-2 | echo «@pem» \| base64 -d > key.pem
evo-token | EVOLVABLE_TOKEN=«evo_{url:43}»
evo-token-2 | Authorization: Bearer «evo_{url:43}»
evo-token-3 | the token evo is «evo_{url:43}» for now
github | «ghp_{any:36}»
github-server | x-access-token:«ghs_{any:36}»@github.com
github-pat | «github_pat_{any:22}_{any:59}»
gitlab | «glpat-{url:20}»
gitlab-routable | «glpat-{url:27}.01.{low:9}»
gitlab-runner | registration «GR1348941{url:20}»
gitlab-deploy | «gldt-{url:20}»
gitlab-trigger | «glptt-{hex:40}»
bitbucket | «ATBB{any:32}»
bitbucket-secret | BITBUCKET_CLIENT_SECRET=«{any:32}»
gitea | GITEA_TOKEN=«{hex:40}»
slack-bot | «xoxb-{num:12}-{num:12}-{any:24}»
slack-user | «xoxp-{num:12}-{num:12}-{num:12}-{hex:32}»
slack-app | «xapp-1-A{UP:10}-{num:13}-{hex:64}»
slack-hook | https://«hooks.slack.com/services/T{UP:10}/B{UP:10}/{any:24}»
slack-config | «xoxe.xoxp-1-{any:166}»
slack-signing | SLACK_SIGNING_SECRET=«{hex:32}»
teams | https://acme.webhook.office.com/«webhookb2/{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}@{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}/IncomingWebhook/{hex:32}/{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
stripe | «sk_live_{any:99}»
stripe-restricted | «rk_live_{any:24}»
stripe-hook | «whsec_{any:32}»
paypal | PAYPAL_CLIENT_SECRET="«E{url:79}»"
square | «EAAA{url:60}»
square-2 | «sq0csp-{url:43}»
adyen | ADYEN_API_KEY=«AQE{b64:80}-{b64:44}=-{any:16}»
braintree | «access_token$production${low:16}${hex:32}»
plaid | PLAID_SECRET=«{hex:30}»
plaid-token | «access-production-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
coinbase | coinbase_api_secret: «{any:64}»
razorpay | key_secret='«{any:24}»'
mollie | «live_{any:30}»
openai | «sk-proj-{url:74}T3BlbkFJ{url:74}»
openai-old | «sk-{any:20}T3BlbkFJ{any:20}»
anthropic | «sk-ant-api03-{url:93}AA»
anthropic-admin | «sk-ant-admin01-{url:93}AA»
google-api | «AIza{url:35}»
google-oauth | "client_secret": "«GOCSPX-{url:28}»"
google-refresh | "refresh_token": "«1//0{url:60}»"
gcp-service | {"type": "service_account", "private_key_id": "«{hex:40}»"}
gemini-new | GEMINI=«AQ.Ab8RN6{url:44}»
firebase | «AAAA{url:7}:APA91b{url:134}»
mistral | MISTRAL_API_KEY=«{any:32}»
cohere | co = cohere.Client("«{any:40}»")
cohere-2 | COHERE_API_KEY «{any:40}»
groq | «gsk_{any:52}»
perplexity | «pplx-{any:48}»
replicate | «r8_{any:37}»
huggingface | «hf_{let:34}»
together | TOGETHER_API_KEY=«{hex:64}»
deepseek | «sk-{hex:32}»
xai | «xai-{any:80}»
elevenlabs | xi-api-key: «{hex:32}»
elevenlabs-2 | «sk_{hex:48}»
stability | «sk-{any:48}»
langfuse | LANGFUSE_SECRET_KEY=«sk-lf-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
langsmith | «lsv2_pt_{hex:32}_{hex:10}»
wandb | wandb login «{hex:40}»
wandb-2 | WANDB_API_KEY=«{hex:40}»
pinecone | «pcsk_{any:6}_{any:62}»
weaviate | WEAVIATE_API_KEY="«{any:36}»"
cerebras | «csk-{low:48}»
nvidia | «nvapi-{url:64}»
voyage | «pa-{url:43}»
tavily | «tvly-dev-{any:32}»
firecrawl | «fc-{hex:32}»
exa | EXA_API_KEY={hex:8}
serpapi | serpapi key=«{hex:64}»
jina | «jina_{hex:32}{any:28}»
cloudflare | CLOUDFLARE_API_TOKEN=«{url:40}»
cloudflare-global | X-Auth-Key: «{hex:37}»
cloudflare-origin | «v1.0-{hex:24}-{hex:146}»
digitalocean | «dop_v1_{hex:64}»
digitalocean-spaces | SPACES_SECRET=«{b64:43}»
heroku | HEROKU_API_KEY=«{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
heroku-new | «HRKU-AA{url:58}»
vercel | VERCEL_TOKEN=«{any:24}»
netlify | «nfp_{any:36}»
fly | «FlyV1 fm2_{b64:120}»
railway | RAILWAY_TOKEN=«{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
linode | LINODE_TOKEN=«{hex:64}»
vultr | VULTR_API_KEY=«{UP:36}»
hetzner | HCLOUD_TOKEN=«{any:64}»
scaleway | SCW_SECRET_KEY=«{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
ovh | OVH_APPLICATION_SECRET=«{any:32}»
alibaba | aliyun «LTAI5t{any:18}»
alibaba-secret | ALIBABA_CLOUD_ACCESS_KEY_SECRET=«{any:30}»
tencent | secret_id: «AKID{any:32}»
yandex | «AQVN{url:36}»
ibm | IBMCLOUD_API_KEY=«{url:44}»
oracle | pass_phrase=«{any:14}»
npm | //registry.npmjs.org/:_authToken=«npm_{any:36}»
npm-legacy | //registry.acme.io/:_auth=«{b64:30}==»
yarn | npmAuthToken: "«{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»"
pypi | «pypi-AgEIcHlwaS5vcmc{url:150}»
pypirc | [pypi]\nusername = acme\npassword = «{any:18}»
rubygems | «rubygems_{hex:48}»
nuget-key | «oy2{low:43}»
crates | cargo login «cio{any:32}»
hex | HEX_API_KEY=«{hex:32}»
packagist | COMPOSER_AUTH='{"http-basic":{"repo.acme.io":{"username":"u","password":"«{any:18}»"}}}'
docker | «dckr_pat_{url:27}»
docker-auth | {"auths": {"ghcr.io": {"auth": "«@pair»"}}}
artifactory | «AKCp{any:69}»
artifactory-ref | «cmVmdGtu{any:56}»
sonar | sonar.login=«squ_{hex:40}»
sonar-2 | «sqp_{hex:40}»
snyk | SNYK_TOKEN=«{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
codecov | CODECOV_TOKEN: «{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
circleci | «CCIPAT_{any:22}_{hex:40}»
buildkite | «bkua_{hex:40}»
travis | travis login --github-token «{hex:40}»
jenkins | curl -u admin:«11{hex:32}» https://ci.acme.io/job
grafana | «glsa_{any:32}_{hex:8}»
grafana-cloud | «glc_eyJ{any:80}=»
datadog | DD_API_KEY=«{hex:32}»
datadog-app | DD_APP_KEY: «{hex:40}»
newrelic | «NRAK-{UP:27}»
newrelic-license | NEW_RELIC_LICENSE_KEY=«{hex:36}NRAL»
sentry | «sntrys_eyJ{any:80}=_{any:43}»
sentry-user | «sntryu_{hex:64}»
pagerduty | PAGERDUTY_TOKEN=«u+{any:18}»
opsgenie | Authorization: GenieKey «{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
honeycomb | x-honeycomb-team: «{any:22}»
honeycomb-2 | «hcaik_{low:58}»
dynatrace | «dt0c01.{UP:24}.{UP:64}»
splunk | Authorization: Splunk «{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
elastic | Authorization: ApiKey «{any:58}==»
logdna | INGESTION_KEY=«{hex:32}»
mixpanel | MIXPANEL_API_SECRET=«{hex:32}»
amplitude | AMPLITUDE_SECRET_KEY=«{hex:32}»
segment | SEGMENT_WRITE_KEY=«{any:32}»
posthog | «phx_{any:43}»
launchdarkly | «sdk-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
launchdarkly-2 | «api-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
sendgrid | «SG.{url:22}.{url:43}»
mailgun | «key-{hex:32}»
mailgun-new | MAILGUN={hex:4}
mailchimp | «{hex:32}-us21»
postmark | X-Postmark-Server-Token: «{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
sendinblue | «xkeysib-{hex:64}-{any:16}»
resend | «re_{any:8}_{any:24}»
twilio | TWILIO_AUTH_TOKEN=«{hex:32}»
twilio-key | «SK{hex:32}»
vonage | NEXMO_API_SECRET=«{any:16}»
messagebird | MESSAGEBIRD_ACCESS_KEY=«{any:25}»
algolia | ALGOLIA_ADMIN_KEY=«{hex:32}»
mapbox | «sk.eyJ1Ijoi{any:60}.{url:22}»
shopify | «shpat_{hex:32}»
shopify-shared | «shpss_{hex:32}»
woocommerce | «cs_{hex:40}»
hubspot | «pat-na1-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
salesforce | «00D{any:12}!{any:96}»
zendesk | ZENDESK_API_TOKEN=«{any:40}»
intercom | INTERCOM_TOKEN=«dG9r{any:56}=»
linear | «lin_api_{any:40}»
notion | «ntn_{num:11}{any:35}»
notion-old | «secret_{any:43}»
airtable | «pat{any:14}.{hex:64}»
asana | asana pat = «1/{num:16}:{hex:32}»
jira | «ATATT3xFfGF0{url:170}={HEX:8}»
trello | trello_token=«ATTA{hex:64}{HEX:8}»
clickup | «pk_{num:8}_{UP:32}»
monday | MONDAY_TOKEN=«eyJhbGciOiJIUzI1NiJ9.eyJ0aWQ{any:60}.{url:43}»
figma | «figd_{url:40}»
miro | MIRO_ACCESS_TOKEN=«{url:27}»
dropbox | «sl.u.{url:130}»
box | BOX_CLIENT_SECRET=«{any:32}»
okta | OKTA_TOKEN=«00{url:40}»
okta-2 | Authorization: SSWS «00{url:40}»
auth0 | AUTH0_CLIENT_SECRET=«{url:64}»
clerk | CLERK_SECRET_KEY=«sk_test_{any:42}»
supabase | «sbp_{hex:40}»
supabase-secret | «sb_secret_{url:22}_{any:8}»
planetscale | «pscale_pw_{url:43}»
neon | postgresql://neondb_owner:«npg_{any:12}»@ep-cool.aws.neon.tech/neondb
neon-api | «napi_{low:64}»
mongodb-atlas | «mdb_sa_sk_{url:40}»
upstash | UPSTASH_REDIS_REST_TOKEN="«A{any:55}=»"
turso | TURSO_AUTH_TOKEN=«eyJhbGciOiJFZERTQSJ9.eyJhIjoicnciLCJ{any:40}.{url:86}»
databricks | «dapi{hex:32}-2»
snowflake | SNOWFLAKE_PASSWORD=«{any:16}»
confluent | CONFLUENT_CLOUD_API_SECRET=«{b64:64}»
vault | «hvs.CAESI{url:90}»
vault-old | VAULT_TOKEN=«s.{any:24}»
consul | CONSUL_HTTP_TOKEN=«{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}»
doppler | «dp.pt.{any:43}»
doppler-service | «dp.st.prd.{any:40}»
infisical | «st.{hex:24}.{hex:32}.{hex:32}»
onepassword | «ops_eyJ{any:260}»
onepassword-key | «A3-{UP:6}-{UP:6}-{UP:5}-{UP:5}-{UP:5}-{UP:5}»
bitwarden | BW_CLIENTSECRET=«{any:30}»
pulumi | «pul-{hex:40}»
age | «AGE-SECRET-KEY-1QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S3JN54KH{b32:0}»
wireguard | PrivateKey = «{b64:43}=»
ssh-pass | sshpass -p '«{any:12}»' ssh root@10.0.0.4
htpasswd | admin:«$apr1${any:8}${any:22}»
shadow | root:«$6${any:12}${any:86}»:19000:0:99999:7:::
pgpass | db.internal:5432:shop:app:«{any:14}»
netrc | machine api.acme.io login bot password «{any:20}»
mycnf | [client]\nuser=root\npassword=«{any:14}»
wpconfig | define('DB_PASSWORD', '«{any:16}»');
wpsalt | define('AUTH_KEY', '«{any:60}»');
django | SECRET_KEY = 'django-insecure-«{any:50}»'
rails | secret_key_base: «{hex:128}»
laravel | APP_KEY=base64:«{b64:43}=»
flask | app.config["SECRET_KEY"] = "«{hex:48}»"
k8s-secret | apiVersion: v1\nkind: Secret\ndata:\n  password: «{b64:22}==»
compose | environment:\n  - POSTGRES_PASSWORD=«{any:16}»
ansible | ansible_become_pass: «{any:14}»
kdbx | keepassxc-cli --password «{any:14}»
make | PASSWORD := «{any:14}»
dockerfile | ENV API_TOKEN «{any:32}»
dockerfile-arg | ARG NPM_TOKEN=«{hex:40}»
gh-actions | echo "::add-mask::x" && TOKEN=«{any:40}» make deploy
csharp | var apiKey = "«{any:32}»";
java | private static final String API_SECRET = "«{any:32}»";
go | const clientSecret = "«{any:40}»"
rust | let api_key: &str = "«{any:32}»";
php | $config['db_pass'] = '«{any:14}»';
ruby | password: '«{any:14}»',
swift | let apiToken = "«{any:32}»"
kotlin | buildConfigField "String", "API_KEY", "\"«{any:32}»\""
lua | local api_key = "«{any:32}»"
r | Sys.setenv(OPENAI_API_KEY = "«sk-{any:48}»")
matlab | password = '«{any:14}9»';
toml | [api]\ntoken = "«{any:36}»"
ini | [smtp]\npass = «{any:14}9»
yaml-block | token: >-\n  «{any:40}»
basic | Authorization: Basic «@pair»
bearer | authorization: bearer «{any:40}»
cookie | Set-Cookie: session=«{any:40}»; HttpOnly
signed-url | https://s3.amazonaws.com/b/k?X-Amz-Signature=«{hex:64}»
otp | otpauth://totp/acme:bob?secret=«{b32:32}»&issuer=acme
"""  # noqa: E501


@dataclass(frozen=True)
class Provided:
    """One secret in a text.

    secret: what may stand nowhere, `parts` of at least eight characters neither.
    """

    name: str
    text: str
    secret: str
    held_out: bool


def _of(rng: random.Random, alphabet: str, length: int) -> str:
    chars = _ALPHABETS[alphabet]
    made = [rng.choice(chars) for _ in range(length)]
    for place in range(2, length, 5):
        if any(map(str.isdigit, chars)):
            made[place] = rng.choice([char for char in chars if char.isdigit()])
    return "".join(made)


def _block(rng: random.Random) -> str:
    rows = "\n".join(_of(rng, "b64", 64) for _ in range(4))
    head = "-----BEGIN " + "RSA PRIVATE KEY-----"
    pem = f"{head}\n{rows}\n{head.replace('BEGIN', 'END')}\n"
    return base64.b64encode(pem.encode()).decode()


def _made(line: str, rng: random.Random) -> Provided:
    name, _, text = (part.strip() for part in line.partition(" | "))
    text = text.replace("\\n", "\n").replace("\\|", "|").replace("%1b", "\x1b")
    text = re.sub(r"\{(\w+):(\d+)\}", lambda found: _of(rng, found[1], int(found[2])), text)
    if "@pem»" in text:
        text = text.replace("@pem", _block(rng))
    pair = base64.b64encode(f"bot:{_of(rng, 'any', 16)}".encode()).decode()
    text = text.replace("@pair", pair)
    marked = re.search("«(.*?)»", text, re.DOTALL)
    secret = marked[1] if marked else re.split(r"[= \x1b]", text)[-1]
    held_out = zlib.crc32(name.encode()) % 3 == 0
    return Provided(name, text.replace("«", "").replace("»", ""), secret, held_out)


def _all() -> tuple[Provided, ...]:
    rng = random.Random(1622)
    lines = [line for line in _LINES.splitlines() if "«" in line]
    return tuple(_made(line, rng) for line in lines)


PROVIDED = _all()
"""All of them, in the order of the lines."""


def is_hidden(one: Provided, redacted: str) -> bool:
    """Return whether nothing of a secret is left: no eight characters of it, letters and digits
    alone counted.
    """
    colours = re.compile(r"(?:\x1b|\\u001b)\[[0-9;]*m")
    plain = colours.sub("", re.sub(r"\[redacted:[a-z0-9-]+\]", "|", redacted))
    secret = colours.sub("", one.secret)
    least = min(8, len(secret))
    return not any(secret[at : at + least] in plain for at in range(len(secret) - least + 1))
