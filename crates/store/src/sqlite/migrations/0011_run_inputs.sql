-- What an occurrence has of its own. JSON; NULL: nothing.

ALTER TABLE live ADD COLUMN input TEXT;
ALTER TABLE history ADD COLUMN input TEXT;
ALTER TABLE dead_letters ADD COLUMN input TEXT;
