// An OpenID Connect provider for tests: any name with any password can log in. Arguments: the port.
// POST /test/rotate replaces its keys, as an operator of a provider does.

import http from 'node:http';
import { generateKeyPair } from 'node:crypto';
import { promisify } from 'node:util';
import { Provider } from 'oidc-provider';

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;

let rotations = 0;

async function keys() {
  rotations += 1;
  const rsa = await promisify(generateKeyPair)('rsa', { modulusLength: 2048 });
  const ec = await promisify(generateKeyPair)('ec', { namedCurve: 'P-256' });
  const jwk = (pair, kid) => ({ ...pair.privateKey.export({ format: 'jwk' }), use: 'sig', kid: `${kid}-${rotations}` });
  return { keys: [jwk(rsa, 'rsa'), jwk(ec, 'ec')] };
}

// The roles of users and programs, by the prefix of their name.
function rolesOf(name) {
  if (name.startsWith('operator')) return ['jobs-operators', 'staff'];
  if (name.startsWith('submitter')) return ['jobs-submitters'];
  return ['staff'];
}

async function provider() {
  return new Provider(issuer, {
    jwks: await keys(),
    clients: [
      {
        client_id: 'punctual',
        client_secret: 'the secret: of punctual',
        // For a native application, the port of a loopback address may be any.
        application_type: 'native',
        redirect_uris: ['http://127.0.0.1/login/callback'],
        grant_types: ['authorization_code'],
        response_types: ['code'],
      },
      ...['operator-service', 'submitter-service', 'stranger-service'].map((client_id) => ({
        client_id,
        client_secret: 'secret',
        redirect_uris: [],
        grant_types: ['client_credentials'],
        response_types: [],
      })),
    ],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'roles'] },
    // The ID token contains all claims of a user.
    conformIdTokenClaims: false,
    async findAccount(_context, id) {
      const claims = {
        sub: id,
        email: `${id}@example.org`,
        email_verified: !id.includes('unverified'),
        name: `The person ${id}`,
        roles: rolesOf(id),
      };
      return { accountId: id, claims: async () => claims };
    },
    extraTokenClaims: async (_context, token) => ({ roles: rolesOf(token.clientId) }),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        // A resource urn:AUDIENCE:ALGORITHM.
        getResourceServerInfo: async (_context, resource) => {
          const [, audience, alg] = resource.split(':');
          return { scope: 'jobs', audience, accessTokenFormat: 'jwt', accessTokenTTL: 600, jwt: { sign: { alg } } };
        },
      },
    },
    pkce: { required: () => true },
    cookies: { keys: ['for tests'] },
  });
}

let answer = (await provider()).callback();

const server = http.createServer(async (request, response) => {
  if (request.method === 'POST' && request.url === '/test/rotate') {
    answer = (await provider()).callback();
    response.end('rotated\n');
    return;
  }
  answer(request, response);
});
server.listen(port, '127.0.0.1', () => console.log(`the provider is ready at ${issuer}`));
