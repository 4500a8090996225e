"""Predictors, what a trained model does for a user: translation, generation, chat, filling, embedding and so on."""
