"""What likelihood is for: ranking candidates, correcting, filtering, completing, telling apart."""
