"""What a trained model does for its users: translate, generate, chat, fill, embed, label, answer. Learns nothing."""
