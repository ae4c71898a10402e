"""How runs become verdicts and pages: sweeps, claims, notebooks, tables and figures. It imports no paper."""
