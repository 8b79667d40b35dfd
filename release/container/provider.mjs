// An OpenID provider to try the sign-in with: the package oidc-provider with its own form, which takes any name and any
// password. The name says the group: `owner` may approve, every other name may read and report.
// Environment: ISSUER, PORT, HOST, PACKAGES (the folder with node_modules; this file's own by default).

import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const { ISSUER = 'http://127.0.0.1:9000', PORT = '9000', HOST = '0.0.0.0' } = process.env;
const require = createRequire(process.env.PACKAGES ? `${process.env.PACKAGES}/` : import.meta.url);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const key = { ...privateKey.export({ format: 'jwk' }), kid: 'trial', use: 'sig', alg: 'ES256' };
const groups = (login) => (login === 'owner' ? ['owners'] : ['members']);

const provider = new Provider(ISSUER, {
  jwks: { keys: [key] },
  cookies: { keys: [randomBytes(24).toString('hex')] },
  clientDefaults: { id_token_signed_response_alg: 'ES256' },
  scopes: ['openid', 'offline_access', 'groups'],
  claims: { openid: ['sub'], groups: ['groups'] },
  features: {
    registration: { enabled: true },
    deviceFlow: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        audience: resource,
        scope: 'evolvable:read evolvable:report evolvable:write evolvable:approve',
        accessTokenFormat: 'jwt',
        accessTokenTTL: 600,
        jwt: { sign: { alg: 'ES256' } },
      }),
    },
  },
  extraTokenClaims: (_, token) => ({ groups: groups(token.accountId) }),
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, groups: groups(sub) }) }),
});

provider.listen(Number(PORT), HOST, () => console.log(JSON.stringify({ issuer: ISSUER })));
