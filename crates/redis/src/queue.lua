-- Work queues of Annals: one call is one request on one queue, and atomic. The choice of the next item is that of
-- crates/core/src/queue (choice.rs, lane.rs, machine.rs); the conformance suite compares both with random operations.
--
-- KEYS[1]  annals:{STORE/TENANT/QUEUE}, with which every key begins, so that all are in one hash slot:
--   :ledger       hash    seq, passed, clock:0 … clock:4, and the counters
--   :items        hash    id → {seq, p, user, at, tag, attempt, token, worker, until}, numbers as text
--   :payloads     hash    id → JSON
--   :all          zset    id by seq
--   :active       zset    id by the end of its lease
-- and for each priority p, 0 (critical) to 4 (background):
--   :p:age        zset    pending ids by seq
--   :p:tags       zset    seq:id (seq with 16 digits) by tag
--   :p:own        zset    user NUL seq:id, all of score 0, in the order of their bytes
--   :p:users      hash    user → number of pending items
--   :p:next       hash    user → the tag that follows
--   :p:held       hash    user → number of pending and active items
-- ARGV: request, now, cap, fair, ageing_ms, pending_max, pending_max_per_user, then what the request needs.
local base = KEYS[1]
local request, now = ARGV[1], tonumber(ARGV[2])
local cap, fair, ageing = tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local pending_max, pending_max_per_user = tonumber(ARGV[6]), tonumber(ARGV[7])
local UNIT, PASSED_MAX = 1000000, 3
local ledger, items, payloads = base .. ':ledger', base .. ':items', base .. ':payloads'
local all, active = base .. ':all', base .. ':active'

local function text(number) return string.format('%.0f', number) end
local function lane(p, part) return base .. ':' .. p .. ':' .. part end
local function member(item) return string.format('%016.0f', item.seq) .. ':' .. item.id end
local function count(name) redis.call('HINCRBY', ledger, name, 1) end
local function number_of(key, field) return tonumber(redis.call('HGET', key, field) or '0') end

local function load(id)
  local stored = redis.call('HGET', items, id)
  if not stored then return nil end
  local item = cjson.decode(stored)
  item.id = id
  for _, name in ipairs({ 'seq', 'p', 'at', 'tag', 'attempt' }) do item[name] = tonumber(item[name]) end
  if item['until'] then item['until'] = tonumber(item['until']) end
  return item
end

local function save(item)
  local stored = { user = item.user, token = item.token, worker = item.worker }
  for _, name in ipairs({ 'seq', 'p', 'at', 'tag', 'attempt' }) do stored[name] = text(item[name]) end
  if item['until'] then stored['until'] = text(item['until']) end
  redis.call('HSET', items, item.id, cjson.encode(stored))
end

-- Counts down, and forgets what is not there any more.
local function less(key, user)
  if redis.call('HINCRBY', key, user, -1) <= 0 then
    redis.call('HDEL', key, user)
    return true
  end
  return false
end

local function add(item)
  redis.call('ZADD', lane(item.p, 'age'), text(item.seq), item.id)
  redis.call('ZADD', lane(item.p, 'tags'), text(item.tag), member(item))
  redis.call('ZADD', lane(item.p, 'own'), 0, item.user .. '\0' .. member(item))
  redis.call('HINCRBY', lane(item.p, 'users'), item.user, 1)
end

local function remove(item)
  redis.call('ZREM', lane(item.p, 'age'), item.id)
  redis.call('ZREM', lane(item.p, 'tags'), member(item))
  redis.call('ZREM', lane(item.p, 'own'), item.user .. '\0' .. member(item))
  less(lane(item.p, 'users'), item.user)
end

local function enter(item)
  local following = number_of(lane(item.p, 'next'), item.user)
  item.tag = math.max(following, number_of(ledger, 'clock:' .. item.p))
  redis.call('HSET', lane(item.p, 'next'), item.user, text(item.tag + UNIT))
  redis.call('HINCRBY', lane(item.p, 'held'), item.user, 1)
end

local function leave(item)
  if less(lane(item.p, 'held'), item.user) then redis.call('HDEL', lane(item.p, 'next'), item.user) end
end

local function pend(item)
  item['until'] = nil
  redis.call('ZREM', active, item.id)
  add(item)
  save(item)
end

local function drop(item)
  if item['until'] then redis.call('ZREM', active, item.id) else remove(item) end
  leave(item)
  redis.call('HDEL', items, item.id)
  redis.call('HDEL', payloads, item.id)
  redis.call('ZREM', all, item.id)
end

local function expire()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', active, '-inf', text(now))) do
    local item = load(id)
    if item then
      count('expired')
      pend(item)
    else
      redis.call('ZREM', active, id)
    end
  end
end

local function pending_of(p) return redis.call('ZCARD', lane(p, 'age')) end

local function status(item)
  return { item.id, item['until'] and 'active' or 'pending', text(item.p), item.user, text(item.at), text(item.attempt),
    item.worker or '', item['until'] and text(item['until']) or '' }
end

local function enqueued(item, duplicate)
  local position = ''
  if not item['until'] then position = text(redis.call('ZRANK', lane(item.p, 'age'), item.id)) end
  return { duplicate and '1' or '0', item['until'] and 'active' or 'pending', position }
end

local function enqueue(id, p, user, payload)
  local known = load(id)
  if known then return enqueued(known, true) end
  local pending, own = 0, 0
  for at = 0, 4 do
    pending = pending + pending_of(at)
    own = own + number_of(lane(at, 'users'), user)
  end
  if pending >= pending_max then return { 'full', text(pending), '' } end
  if pending_max_per_user > 0 and own >= pending_max_per_user then return { 'full', text(own), user, 'user' } end
  local item = { id = id, p = p, user = user, at = now, attempt = 0 }
  item.seq = redis.call('HINCRBY', ledger, 'seq', 1)
  enter(item)
  add(item)
  save(item)
  redis.call('HSET', payloads, id, payload)
  redis.call('ZADD', all, text(item.seq), id)
  return enqueued(item, false)
end

-- The priority of the oldest pending item, if that has waited for long enough.
local function aged()
  if ageing == 0 then return nil end
  local oldest, found
  for p = 0, 4 do
    local first = redis.call('ZRANGE', lane(p, 'age'), 0, 0, 'WITHSCORES')
    if first[1] and (not oldest or tonumber(first[2]) < oldest) then
      oldest, found = tonumber(first[2]), { p, first[1] }
    end
  end
  if not found then return nil end
  if now - load(found[2]).at >= ageing then return found[1] end
  return nil
end

local function id_of(place) return string.sub(place, 18) end

-- A user's oldest item is served with the user's lowest tag.
local function first_of(p)
  if not fair then return load(redis.call('ZRANGE', lane(p, 'age'), 0, 0)[1]) end
  local lowest = load(id_of(redis.call('ZRANGE', lane(p, 'tags'), 0, 0)[1]))
  local own = redis.call('ZRANGEBYLEX', lane(p, 'own'), '[' .. lowest.user .. '\0', '+', 'LIMIT', 0, 1)[1]
  local item = load(id_of(string.sub(own, string.len(lowest.user) + 2)))
  if item.id ~= lowest.id then
    item.tag, lowest.tag = lowest.tag, item.tag
    redis.call('ZADD', lane(p, 'tags'), text(item.tag), member(item))
    redis.call('ZADD', lane(p, 'tags'), text(lowest.tag), member(lowest))
    save(lowest)
  end
  return item
end

local function take_one(lease, worker)
  if redis.call('ZCARD', active) >= cap then return nil end
  local highest
  for p = 0, 4 do
    if pending_of(p) > 0 then
      highest = p
      break
    end
  end
  if not highest then return nil end
  local passed, oldest, chosen = number_of(ledger, 'passed'), aged(), highest
  if oldest and passed >= PASSED_MAX then chosen = oldest end
  if oldest and oldest ~= chosen then passed = passed + 1 else passed = 0 end
  redis.call('HSET', ledger, 'passed', text(passed))
  local item = first_of(chosen)
  local clock, users = number_of(ledger, 'clock:' .. chosen), redis.call('HLEN', lane(chosen, 'users'))
  clock = math.max(clock + math.floor(UNIT / math.max(users, 1)), item.tag)
  redis.call('HSET', ledger, 'clock:' .. chosen, text(clock))
  remove(item)
  local taken = redis.call('HINCRBY', ledger, 'taken', 1)
  item.attempt = item.attempt + 1
  item.token = text(now) .. '-' .. text(taken)
  if worker ~= '' then item.worker = worker else item.worker = nil end
  item['until'] = now + lease
  redis.call('ZADD', active, text(item['until']), item.id)
  save(item)
  return item
end

local function take(max, lease, worker)
  local taken, lost = {}, {}
  while #taken < max do
    local item = take_one(lease, worker)
    if not item then break end
    local payload = redis.call('HGET', payloads, item.id)
    if payload then
      table.insert(taken, { status(item), item.token, payload })
    else
      count('lost')
      drop(item)
      table.insert(lost, item.id)
    end
  end
  return { taken, lost }
end

local function is_of(item, token) return token == '' or token == item.token end

-- Each answers accepted, changed, and the end of the lease.
local settle = {
  renew = function(item, token, lease)
    if not item or not item['until'] or not is_of(item, token) then return { '0', '0', '' } end
    item['until'] = now + lease
    redis.call('ZADD', active, text(item['until']), item.id)
    save(item)
    return { '1', '1', text(item['until']) }
  end,
  done = function(item, token)
    if not item then return { '1', '0', '' } end
    if not is_of(item, token) then return { '0', '0', '' } end
    -- Without a token only an active item is meant.
    if not item['until'] and token == '' then return { '1', '0', '' } end
    count('done')
    drop(item)
    return { '1', '1', '' }
  end,
  release = function(item, token)
    if not item then return { '1', '0', '' } end
    if not is_of(item, token) then return { '0', '0', '' } end
    if not item['until'] then return { '1', '0', '' } end
    count('released')
    pend(item)
    return { '1', '1', '' }
  end,
}

local function prioritise(id, p)
  local item = load(id)
  if not item then return {} end
  if item.p ~= p then
    local pending = not item['until']
    if pending then remove(item) end
    leave(item)
    item.p = p
    enter(item)
    if pending then add(item) end
    save(item)
  end
  return status(item)
end

local function cancel(id)
  local item = load(id)
  if not item then return {} end
  local before = status(item)
  count('cancelled')
  drop(item)
  return before
end

local function page(after, limit, state, user, any_user)
  local found, cursor = {}, ''
  local last = after
  while true do
    local behind = redis.call('ZRANGEBYSCORE', all, '(' .. last, '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
    if #behind == 0 then return { '', found } end
    for at = 1, #behind, 2 do
      local item = load(behind[at])
      last = behind[at + 1]
      if item then
        local is = item['until'] and 'active' or 'pending'
        if (state == '' or state == is) and (any_user == '1' or user == item.user) then
          if #found == limit then return { cursor, found } end
          table.insert(found, status(item))
          cursor = text(item.seq)
        end
      end
    end
  end
end

local function counts()
  local answer, users, oldest = { text(redis.call('ZCARD', active)) }, 0, nil
  for p = 0, 4 do
    table.insert(answer, text(pending_of(p)))
    users = users + redis.call('HLEN', lane(p, 'users'))
    local first = redis.call('ZRANGE', lane(p, 'age'), 0, 0, 'WITHSCORES')
    if first[1] and (not oldest or tonumber(first[2]) < oldest.seq) then oldest = load(first[1]) end
  end
  table.insert(answer, text(users))
  table.insert(answer, oldest and text(oldest.at) or '')
  for _, name in ipairs({ 'seq', 'taken', 'done', 'expired', 'released', 'cancelled', 'lost' }) do
    table.insert(answer, text(number_of(ledger, name)))
  end
  return answer
end

if request == 'clear' then
  redis.call('DEL', ledger, items, payloads, all, active)
  for p = 0, 4 do
    for _, part in ipairs({ 'age', 'tags', 'own', 'users', 'next', 'held' }) do redis.call('DEL', lane(p, part)) end
  end
  return {}
end

expire()
if request == 'enqueue' then return enqueue(ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11]) end
if request == 'take' then return take(tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]) end
if request == 'prioritise' then return prioritise(ARGV[8], tonumber(ARGV[9])) end
if request == 'cancel' then return cancel(ARGV[8]) end
if request == 'item' then
  local item = load(ARGV[8])
  return item and status(item) or {}
end
if request == 'items' then return page(ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11], ARGV[12]) end
if request == 'counts' then return counts() end
local results, lease = {}, tonumber(ARGV[8])
for at = 9, #ARGV, 2 do table.insert(results, settle[request](load(ARGV[at]), ARGV[at + 1], lease)) end
return results
