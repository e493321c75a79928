"""Operations on whole sessions: list, merge, compact, retention, import."""
