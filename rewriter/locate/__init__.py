"""From the source of a wrapper to its launches, entries and inputs. Nothing is executed."""
