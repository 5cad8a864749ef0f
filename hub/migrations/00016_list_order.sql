-- +goose Up

-- The orders in which lists are asked for, beside that of age. What has no quality is
-- listed behind what has one, by its ref.
CREATE INDEX artifact_by_update ON artifact (updated_at DESC, type, id);
CREATE INDEX artifact_by_type_update ON artifact (type, updated_at DESC, id);
CREATE INDEX artifact_by_type_title ON artifact (type, (title COLLATE "C"), id);
CREATE INDEX artifact_by_type_quality ON artifact (type, quality_score DESC, id) WHERE quality_score IS NOT NULL;
CREATE INDEX link_by_age ON link (created_at DESC, id);
CREATE INDEX signal_by_age ON signal (created_at DESC, id);

-- +goose Down
DROP INDEX artifact_by_update, artifact_by_type_update, artifact_by_type_title, artifact_by_type_quality, link_by_age, signal_by_age;
