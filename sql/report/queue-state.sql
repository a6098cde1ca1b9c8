-- How does a queue stand?
SELECT state, depth, head_since, sender, node, attempt, next_at, paused, draining
FROM postern.queues WHERE queue = :'queue';
