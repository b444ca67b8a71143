// Users and tokens.

import { html, useMemo } from '../lib.js';
import { part, patch, post, remove } from '../api.js';
import { ask, attempt, can, me } from '../state.js';
import { params } from '../router.js';
import { Button, Card, Copy, Empty, Field, Head, Menu, Name, Table, Tabs, Time, usePages } from '../ui.js';

const ROLES = [['viewer', 'viewer: sees jobs, without their data'], ['submitter', 'submitter: its own jobs'], ['operator', 'operator: all jobs, queues, workers'], ['admin', 'admin: everything'], ['worker', 'worker: runs jobs']];
const list = (text) => text.split(',').map((one) => one.trim()).filter(Boolean);
const scopeOf = (one) => [one.owner_id && !one.all_owners && `owner ${one.owner_id}`, one.queues.length && `queues ${one.queues.join(', ')}`, one.job_types.length && `types ${one.job_types.join(', ')}`].filter(Boolean).join('; ');
const RoleField = ({ value = 'viewer' }) => html`<${Field} label="Role"><select name="role">${ROLES.map(([id, text]) => html`<option value=${id} selected=${id === value}>${text}</option>`)}</select></${Field}>`;
const scopeFields = (one) => html`<${Field} label="Owner" hint="Limits it to the jobs of this owner"><input name="owner_id" value=${one?.owner_id ?? ''}/></${Field}><${Field} label="Queues" hint="Separated by commas; empty for all"><input name="queues" value=${(one?.queues ?? []).join(', ')}/></${Field}><${Field} label="Job types" hint="Separated by commas; empty for all"><input name="job_types" value=${(one?.job_types ?? []).join(', ')}/></${Field}>`;
const scopeFrom = (answer) => ({ ...(answer.owner_id.trim() ? { owner_id: answer.owner_id.trim() } : {}), queues: list(answer.queues), job_types: list(answer.job_types) });

const showSecret = (token) => ask({ title: 'Copy this token now', isNews: true, action: 'I have copied it', body: html`<p>It is shown only once. The server keeps a hash.</p><div class="copy-box"><pre class="text-block" tabindex="0" role="region" aria-label="Token">${token.secret}</pre><${Copy} text=${token.secret}/></div>` });

function Tokens() {
  const pages = usePages('tokens', {}, { limit: 200 });
  const rotate = async (token) => {
    const answer = await ask({ title: `New secret for ${token.name}?`, action: 'Rotate', body: html`<p class="muted">The old secret continues to work for some time, so that you can replace it everywhere.</p><${Field} label="The old secret works for"><input name="overlap" value="1h"/></${Field}>` });
    const made = answer && await attempt(() => post(`tokens/${part(token.token_id)}/rotate`, { overlap: answer.overlap }));
    if (made) { await showSecret(made); pages.reload(); }
  };
  const revoke = async (token) => {
    const answer = await ask({ title: `Revoke ${token.name}?`, danger: true, action: 'Revoke', body: html`<p class="muted">It stops working at once, and so do worker sessions that it opened.${token.token_id === me.value.token_id ? ' It is the one that you use now.' : ''}</p>` });
    if (answer !== undefined && await attempt(() => remove(`tokens/${part(token.token_id)}`), `Revoked ${token.name}`) !== undefined) pages.reload();
  };
  const create = async () => {
    const answer = await ask({ title: 'New token', action: 'Create', body: html`<div class="form"><${Field} label="Name" hint="What uses it"><input name="name" required/></${Field}><${RoleField} value="submitter"/>${scopeFields()}<${Field} label="Expires after" hint="Such as 90d; empty for never"><input name="expires_after"/></${Field}></div>` });
    if (!answer) return;
    const made = await attempt(() => post('tokens', { name: answer.name, role: answer.role, ...scopeFrom(answer), ...(answer.expires_after.trim() ? { expires_after: answer.expires_after.trim() } : {}) }));
    if (made) { await showSecret(made); pages.reload(); }
  };
  const columns = [
    { id: 'name', label: 'Name', cell: (token) => html`<strong class="cut" title=${token.name}><${Name}>${token.name || token.token_id}</${Name}></strong>` },
    { id: 'role', label: 'Role', cell: (token) => html`<span class="chip">${token.role}</span>` },
    { id: 'kind', label: 'Kind', cell: (token) => html`<span class="nowrap">${token.browser ? 'browser session' : token.user_id ? 'of a user' : 'token'}</span>` },
    { id: 'scope', label: 'Scope', cell: (token) => html`<span class="cut muted" title=${scopeOf(token)}>${scopeOf(token) || 'everything'}</span>` },
    { id: 'used', label: 'Last used', cell: (token) => html`<${Time} at=${token.last_used_at} style="relative"/>` },
    { id: 'expires', label: 'Expires', cell: (token) => token.expires_at ? html`<${Time} at=${token.expires_at} style="relative"/>` : html`<span class="muted">never</span>` },
    { id: 'created', label: 'Created', cell: (token) => html`<${Time} at=${token.created_at}/>` },
    { id: 'id', label: 'Id', cell: (token) => html`<span class="mono muted">${token.token_id}</span>` },
    { id: 'actions', label: '', cell: (token) => can('access:write') && html`<${Menu} small kind="plain" label=${`Actions on token ${token.token_id}`} items=${[!token.browser && { text: 'New secret', icon: 'refresh', run: () => rotate(token) }, { text: 'Revoke', icon: 'trash', danger: true, run: () => revoke(token) }]}/>` },
  ];
  // Sessions come after tokens, the latest first.
  const items = useMemo(() => [...pages.items].sort((a, b) => Number(a.browser) - Number(b.browser) || Date.parse(b.created_at) - Date.parse(a.created_at)), [pages.items]);
  return html`<${Card} title="Tokens" flush extra=${can('access:write') && html`<${Button} small kind="primary" icon="plus" onClick=${create}>New token</${Button}>`}><${Table} label="Tokens" columns=${columns} items=${items} pages=${pages} keyOf=${(token) => token.token_id}/></${Card}>`;
}

function Users() {
  const pages = usePages('users', {}, { limit: 200 });
  const edit = async (user) => {
    const answer = await ask({ title: user ? `Change ${user.email}` : 'New user', action: 'Save', body: html`<div class="form"><${Field} label="Email address"><input name="email" type="email" required value=${user?.email ?? ''}/></${Field}><${Field} label="Display name"><input name="display_name" value=${user?.display_name ?? ''}/></${Field}><${RoleField} value=${user?.role}/>${scopeFields(user)}</div>` });
    if (!answer) return;
    const body = { email: answer.email, role: answer.role, ...(answer.display_name.trim() ? { display_name: answer.display_name.trim() } : {}), ...scopeFrom(answer) };
    if (await attempt(() => user ? patch(`users/${part(user.user_id)}`, { owner_id: null, ...body }) : post('users', body), `Saved ${answer.email}`) !== undefined) pages.reload();
  };
  const disable = async (user) => { if (await attempt(() => patch(`users/${part(user.user_id)}`, { disabled: !user.disabled }), `${user.disabled ? 'Enabled' : 'Disabled'} ${user.email}`) !== undefined) pages.reload(); };
  const drop = async (user) => {
    const answer = await ask({ title: `Remove ${user.email}?`, danger: true, action: 'Remove', body: html`<p class="muted">Tokens and sessions of this user stop working. Jobs stay.</p>` });
    if (answer !== undefined && await attempt(() => remove(`users/${part(user.user_id)}`), `Removed ${user.email}`) !== undefined) pages.reload();
  };
  const columns = [
    { id: 'email', label: 'Email address', cell: (user) => html`<strong class="cut"><${Name}>${user.email}</${Name}></strong>` },
    { id: 'name', label: 'Name', cell: (user) => html`<${Name}>${user.display_name ?? '–'}</${Name}>` },
    { id: 'role', label: 'Role', cell: (user) => html`<span class="chip">${user.role}</span>` },
    { id: 'state', label: 'State', cell: (user) => user.disabled ? html`<span class="status bad">disabled</span>` : html`<span class="status ok">enabled</span>` },
    { id: 'scope', label: 'Scope', cell: (user) => html`<span class="cut muted">${scopeOf(user) || 'everything'}</span>` },
    { id: 'created', label: 'Created', cell: (user) => html`<${Time} at=${user.created_at}/>` },
    { id: 'actions', label: '', cell: (user) => can('access:write') && html`<${Menu} small kind="plain" label=${`Actions on ${user.email}`} items=${[{ text: 'Change', icon: 'edit', run: () => edit(user) }, { text: user.disabled ? 'Enable' : 'Disable', icon: 'power', run: () => disable(user) }, { text: 'Remove', icon: 'trash', danger: true, run: () => drop(user) }]}/>` },
  ];
  return html`<${Card} title="Users" flush extra=${can('access:write') && html`<${Button} small kind="primary" icon="plus" onClick=${() => edit()}>New user</${Button}>`}><${Table} label="Users" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(user) => user.user_id} empty=${html`<${Empty} icon="access" title="There are no users">Tokens work without users. Users are for people who log in with an identity provider, or who have several tokens.</${Empty}>`}/></${Card}>`;
}

export default function Access() {
  const tab = params().get('tab') ?? 'tokens';
  return html`<${Head} title="Access" about="Who may do what."/><${Tabs} label="Kinds of access" current=${tab} hrefOf=${(one) => `access${one === 'tokens' ? '' : `?tab=${one}`}`} items=${[['tokens', 'Tokens'], ['users', 'Users']]}/>${tab === 'users' ? html`<${Users}/>` : html`<${Tokens}/>`}`;
}
