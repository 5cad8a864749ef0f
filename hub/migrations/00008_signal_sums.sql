-- +goose Up

-- The sums after each signal, as its row in the feed has them: without them the
-- row could not be made again for those who begin to copy. No program before this
-- step trimmed the log, so it still says what they were.
ALTER TABLE signal ADD COLUMN aggregate text;
SELECT set_config('scidex.rewrite', 'on', true);
UPDATE signal s SET aggregate = (c.data::json -> 'aggregate')::text
    FROM feed.change c
    WHERE c.op = 'P' AND c.data IS NOT NULL AND c.ref = 'signal:' || s.id AND c.kind = 'signal' AND c.hash = s.row_hash;
ALTER TABLE signal ALTER COLUMN aggregate SET NOT NULL;

-- +goose Down
ALTER TABLE signal DROP COLUMN aggregate;
