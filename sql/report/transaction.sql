-- What is the state of a transaction? :ref is its id or its uid.
SELECT queue, position, state, queue_state, retries, sender, received_at, done_at, error
FROM postern.transaction(:'ref');
