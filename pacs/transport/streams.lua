-- Every change of a group's place, each in one step that Redis runs whole or not at all.
-- Sent with a prelude that sets `operation`; see redis_streams.py. All keys of a lane share one hash tag.
--
-- An entry is deleted with its acknowledgement, so a stream's length is the number of groups in it and the
-- ledger's in_flight is counted from the streams, not derived from the other counters.

local GROUP = 'stage'

local function let_go(stream, id)
  if redis.call('XACK', stream, GROUP, id) == 0 then return false end
  redis.call('XDEL', stream, id)
  return true
end

if operation == 'admit' then
  -- KEYS prompts ledger ; ARGV sequence payload
  local next_sequence = tonumber(redis.call('HGET', KEYS[2], 'next_sequence') or '0')
  if next_sequence ~= tonumber(ARGV[1]) then return 0 end
  redis.call('HINCRBY', KEYS[2], 'next_sequence', 1)
  redis.call('HINCRBY', KEYS[2], 'admitted', 1)
  redis.call('XADD', KEYS[1], '*', 'payload', ARGV[2])
  return 1

elseif operation == 'hand_over' then
  -- KEYS source target ledger ; ARGV id payload tokens
  if not let_go(KEYS[1], ARGV[1]) then return 0 end
  redis.call('XADD', KEYS[2], '*', 'payload', ARGV[2])
  if ARGV[3] ~= '0' then redis.call('HINCRBY', KEYS[3], 'tokens', ARGV[3]) end
  return 1

elseif operation == 'finish_trained' then
  -- KEYS labeled ledger ; ARGV id …
  local finished = 0
  for _, id in ipairs(ARGV) do
    if let_go(KEYS[1], id) then finished = finished + 1 end
  end
  redis.call('HINCRBY', KEYS[2], 'trained', finished)
  return finished

elseif operation == 'drop' then
  -- KEYS stream ledger [dead] ; ARGV id reason [payload]
  if not let_go(KEYS[1], ARGV[1]) then return 0 end
  redis.call('HINCRBY', KEYS[2], 'dropped:' .. ARGV[2], 1)
  if KEYS[3] then redis.call('XADD', KEYS[3], '*', 'payload', ARGV[3], 'reason', ARGV[2], 'stream', KEYS[1]) end
  return 1

elseif operation == 'admit_again' then
  -- KEYS stream prompts ledger ; ARGV id prompt reason
  if not let_go(KEYS[1], ARGV[1]) then return 0 end
  redis.call('HINCRBY', KEYS[3], 'dropped:' .. ARGV[3], 1)
  redis.call('HINCRBY', KEYS[3], 'admitted', 1)
  redis.call('XADD', KEYS[2], '*', 'payload', ARGV[2])
  return 1

elseif operation == 'ledger' then
  -- KEYS ledger prompts completions labeled
  return {redis.call('HGETALL', KEYS[1]), redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]) + redis.call('XLEN', KEYS[4])}
end

return redis.error_reply('no such operation: ' .. operation)
