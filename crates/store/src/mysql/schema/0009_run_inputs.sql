-- What an occurrence has of its own. JSON; NULL: nothing.

ALTER TABLE live ADD COLUMN input MEDIUMTEXT;

ALTER TABLE history ADD COLUMN input MEDIUMTEXT;

ALTER TABLE dead_letters ADD COLUMN input MEDIUMTEXT;
