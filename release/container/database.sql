-- The library's owner is no superuser: row-level security does not hold for one.
CREATE ROLE evolvable LOGIN PASSWORD 'trial';
CREATE DATABASE trial OWNER evolvable;
