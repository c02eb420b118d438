"""From a run's files to numbers, tables, figures and judgements."""
