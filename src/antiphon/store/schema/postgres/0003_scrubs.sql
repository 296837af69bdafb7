-- Transactions that took words back whose dead rows may still lie in the files.

CREATE TABLE scrubs (
    transaction xid8 PRIMARY KEY
);
