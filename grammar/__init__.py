"""The rule language: text to typed rules, with static checks and diagnostics."""
