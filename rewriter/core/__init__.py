"""What every room uses: errors, text, JSON, edits of bytes, writing files. Nothing of Inductor."""
