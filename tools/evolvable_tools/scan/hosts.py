"""Hosts that need no question."""

WELL_KNOWN = frozenset(
    (
        "github.com raw.githubusercontent.com api.github.com gist.github.com objects.githubusercontent.com ghcr.io gitlab.com"
        " bitbucket.org pypi.org files.pythonhosted.org registry.npmjs.org npmjs.com www.npmjs.com crates.io static.crates.io"
        " index.crates.io docs.rs pkg.go.dev proxy.golang.org go.dev docs.python.org developer.mozilla.org docker.io"
        " registry.hub.docker.com hub.docker.com quay.io mcr.microsoft.com gcr.io nvcr.io public.ecr.aws huggingface.co hf.co"
        " astral.sh bun.sh deno.land sh.rustup.rs get.docker.com brew.sh nodejs.org rubygems.org packagist.org repo.maven.apache.org"
        " download.pytorch.org conda.anaconda.org unpkg.com cdn.jsdelivr.net esm.sh claude.ai claude.com code.claude.com"
        " docs.anthropic.com api.anthropic.com api.openai.com platform.openai.com skills.sh deb.nodesource.com dl.google.com"
        " storage.googleapis.com packages.microsoft.com learn.microsoft.com arxiv.org api.nuget.org schemas.microsoft.com"
        " json.schemastore.org www.w3.org json-schema.org fonts.googleapis.com fonts.gstatic.com schema.org"
    ).split()
)
"""Hosts that developers' machines talk to every day. What they serve may still be anybody's."""
