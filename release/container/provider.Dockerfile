# An OpenID provider to try the sign-in with; never for real accounts: every name signs in without a password.
FROM node:22-bookworm-slim
WORKDIR /provider
COPY tests/support/oidc/package.json tests/support/oidc/package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY release/container/provider.mjs ./
USER node
EXPOSE 9000
CMD ["node", "provider.mjs"]
