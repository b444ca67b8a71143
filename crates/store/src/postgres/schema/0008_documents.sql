-- Small documents of users and of the cluster: see docs/decisions/0046-stored-documents.md.

CREATE TABLE documents (
    -- Its kind and name. Lists are in the order of bytes, as everywhere.
    id      text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    -- JSON.
    body    text NOT NULL
);
