-- What came in last?
SELECT received_at, queue, uid, type, state, error FROM postern.recent(50);
