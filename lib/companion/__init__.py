"""Turn runs into verdicts and pages: sweeps, claims, notebooks, tables and figures. It imports no paper."""
