"""What must hold in every run's files, whatever the policy. The door is `analysis.audit`."""
