"""What happens when a rank fails, leaves, is late or calls another collective than the others."""
