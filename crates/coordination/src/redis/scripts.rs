//! The scripts: each call of the port is one script, which Redis runs in one step. The first argument of
//! every script is the prefix of the cluster.

use punctual_core::limits::MEMBER_TTL_BELIEVED_MAX;
use redis::Script;

pub struct Scripts {
    pub join: Script,
    pub beat: Script,
    pub look: Script,
    pub take: Script,
    pub release: Script,
    pub leave: Script,
    pub repair: Script,
}

impl Scripts {
    pub fn new() -> Self {
        let longest = MEMBER_TTL_BELIEVED_MAX.as_millis();
        let script = |text: &str| Script::new(&format!("local longest = {longest}{NAMES}{text}"));
        Scripts {
            join: script(JOIN),
            beat: script(BEAT),
            look: script(LOOK),
            take: script(TAKE),
            release: script(RELEASE),
            leave: script(LEAVE),
            repair: script(REPAIR),
        }
    }
}

/// The start of every script. `KEYS[1]` is the set of all ids; the names of the other keys are derived from
/// it. A member key that another program has written, so that it has another type or never expires, is
/// ignored, and so is an invalid id.
const NAMES: &str = r"
local ids, prefix = KEYS[1], ARGV[1]
local holders, epochs = prefix .. ':holders', prefix .. ':epochs'
local function key(id) return prefix .. ':member:' .. id end
local function alive(id)
  if #id > 64 or not string.match(id, '^[%w_%-]+$') then return false end
  local left = redis.call('PTTL', key(id))
  return left >= 0 and left <= longest and redis.call('TYPE', key(id)).ok == 'hash'
end
local function epoch_of(name)
  local text = redis.call('HGET', epochs, name)
  if text and string.match(text, '^%d+$') and #text < 20 then return text end
end
local function free_all(id)
  local held = redis.call('HGETALL', holders)
  for at = 1, #held, 2 do
    if held[at + 1] == id then redis.call('HDEL', holders, held[at]) end
  end
end
";

/// An id that did not exist, or has expired, holds no leases.
const JOIN: &str = r"
local id, card, ttl = ARGV[2], ARGV[3], ARGV[4]
if not alive(id) then free_all(id) end
redis.call('HSET', key(id), 'card', card, 'ttl', ttl)
redis.call('PEXPIRE', key(id), ttl)
redis.call('SADD', ids, id)
return 1
";

const BEAT: &str = r"
local id, card = ARGV[2], ARGV[3]
if not alive(id) then return 0 end
redis.call('HSET', key(id), 'card', card)
redis.call('PEXPIRE', key(id), redis.call('HGET', key(id), 'ttl'))
redis.call('SADD', ids, id)
return 1
";

/// Returns the ids and cards of live members, and the name, epoch and holder of their leases. Expired members
/// are removed. Also returns the names of malformed entries: leases that were freed because they had no live
/// holder or no epoch, and members that have another type, would never expire or have an invalid id. Those
/// are removed, too.
const LOOK: &str = r"
local members, leases, freed, strangers = {}, {}, {}, {}
for _, id in ipairs(redis.call('SMEMBERS', ids)) do
  local card = alive(id) and redis.call('HGET', key(id), 'card')
  if card then
    members[#members + 1] = id
    members[#members + 1] = card
  else
    if redis.call('TYPE', key(id)).ok ~= 'none' then strangers[#strangers + 1] = id end
    redis.call('SREM', ids, id)
    free_all(id)
  end
end
local held = redis.call('HGETALL', holders)
for at = 1, #held, 2 do
  local name, holder = held[at], held[at + 1]
  local epoch = epoch_of(name)
  if epoch and alive(holder) then
    leases[#leases + 1] = name
    leases[#leases + 1] = epoch
    leases[#leases + 1] = holder
  else
    redis.call('HDEL', holders, name)
    freed[#freed + 1] = name
  end
end
return {members, leases, freed, strangers}
";

/// Returns holder and epoch for each name; nothing if the member is not alive.
const TAKE: &str = r"
local id = ARGV[2]
if not alive(id) then return {} end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local answers = {}
for at = 3, #ARGV do
  local name = ARGV[at]
  local holder = redis.call('HGET', holders, name)
  if not holder or not alive(holder) or not epoch_of(name) then
    local before = tonumber(epoch_of(name) or '0')
    redis.call('HSET', epochs, name, string.format('%.0f', math.max(before + 1, now)))
    redis.call('HSET', holders, name, id)
    holder = id
  end
  answers[#answers + 1] = holder
  answers[#answers + 1] = redis.call('HGET', epochs, name)
end
return answers
";

const RELEASE: &str = r"
local id = ARGV[2]
local answers = {}
for at = 3, #ARGV, 2 do
  local name, epoch = ARGV[at], ARGV[at + 1]
  local is_held = alive(id) and redis.call('HGET', holders, name) == id
    and redis.call('HGET', epochs, name) == epoch
  if is_held then redis.call('HDEL', holders, name) end
  answers[#answers + 1] = is_held and 1 or 0
end
return answers
";

/// Removes keys of another type under our names, which would make all other scripts fail. Returns their
/// names. Live members come back with their next heartbeat, and acquire their leases again.
const REPAIR: &str = r"
local removed = {}
for _, pair in ipairs({{ids, 'set'}, {holders, 'hash'}, {epochs, 'hash'}}) do
  local kind = redis.call('TYPE', pair[1]).ok
  if kind ~= 'none' and kind ~= pair[2] then
    redis.call('DEL', pair[1])
    removed[#removed + 1] = pair[1]
  end
end
return removed
";

const LEAVE: &str = r"
local id = ARGV[2]
redis.call('DEL', key(id))
redis.call('SREM', ids, id)
free_all(id)
return 1
";
