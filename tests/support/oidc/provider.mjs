// A real OpenID provider on loopback for the tests: the package oidc-provider, with its own login form.
// Arguments: the folder with node_modules. Prints its address; reads commands from stdin, a JSON object a line.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { generateKeyPairSync } from 'node:crypto';
import { createInterface } from 'node:readline';

console.info = console.warn = () => {};  // its notices: only our answers go to stdout
const require = createRequire(`${process.argv[2]}/`);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const accounts = {};  // login -> claims
let keys = [];
let provider;

function newKey() {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { ...privateKey.export({ format: 'jwk' }), kid: `key-${keys.length + 1}-${Date.now()}`, use: 'sig', alg: 'ES256' };
}

function start() {
  provider = new Provider(issuer, {
    jwks: { keys },
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    cookies: { keys: ['of tests only'] },
    scopes: ['openid', 'offline_access', 'groups'],
    claims: { openid: ['sub'], groups: ['groups'] },
    conformIdTokenClaims: false,
    features: {
      registration: { enabled: true },
      deviceFlow: { enabled: true, charset: 'base-20', mask: '****-****' },
      introspection: { enabled: true },
      revocation: { enabled: true },
      rpInitiatedLogout: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => false,
        getResourceServerInfo: (ctx, resource) => ({
          audience: resource,
          scope: 'evolvable:read evolvable:report evolvable:write evolvable:approve',
          accessTokenFormat: resource.includes('opaque') ? 'opaque' : 'jwt',
          accessTokenTTL: 600,
          jwt: { sign: { alg: 'ES256' } },
        }),
      },
    },
    rotateRefreshToken: true,
    extraTokenClaims: (ctx, token) => ({ groups: accounts[token.accountId]?.groups ?? [] }),
    findAccount: (ctx, sub) => (sub in accounts ? { accountId: sub, claims: () => ({ sub, ...accounts[sub] }) } : undefined),
  });
}

const server = createServer((request, response) => provider.callback()(request, response));
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;
keys = [newKey()];
start();
console.log(JSON.stringify({ issuer }));

const commands = {
  account: ({ login, claims }) => { if (claims) accounts[login] = claims; else delete accounts[login]; },
  rotate: () => { keys = [newKey()]; start(); },
  end: () => process.exit(0),
};

const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const { command, ...rest } = JSON.parse(line);
  commands[command](rest);
  console.log(JSON.stringify({ done: command }));
});
lines.on('close', () => process.exit(0));
