-- What an occurrence has of its own. JSON; NULL: nothing.

ALTER TABLE live ADD COLUMN input text;
ALTER TABLE history ADD COLUMN input text;
ALTER TABLE dead_letters ADD COLUMN input text;
