"""From bytes to rows: packed files, streams, spans of time, words of status and GPU types."""
