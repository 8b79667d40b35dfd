-- The searches of reviews and rounds were noted as shown to an agent. They have no session, and nothing was opened by
-- them. The same holds for a search of an agent whose client names no session. So such rows count no longer: their
-- origin is `unknown`, until a transcript names the search. Reviews and rounds store the sessions that they read; a
-- library without any had none of both.
UPDATE shown SET origin = 'unknown' WHERE origin IS NULL AND session IS NULL
    AND NOT EXISTS (SELECT 1 FROM use u WHERE u.search = shown.search)
    AND EXISTS (SELECT 1 FROM taken t WHERE t.origin IS NULL);
