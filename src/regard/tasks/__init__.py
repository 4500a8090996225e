"""What is learned. A new task is a file that is imported here."""

from regard.tasks.answer import AnswerConfig
from regard.tasks.chat import ChatConfig
from regard.tasks.choose import ChooseConfig
from regard.tasks.classify import ClassifyConfig, RegressConfig
from regard.tasks.contract import TaskConfig
from regard.tasks.embedding import EmbeddingConfig
from regard.tasks.language_modelling import LanguageModellingConfig
from regard.tasks.pretraining import PretrainingConfig
from regard.tasks.tag import TagConfig
from regard.tasks.translation import TranslationConfig

__all__ = [
    "AnswerConfig",
    "ChatConfig",
    "ChooseConfig",
    "ClassifyConfig",
    "EmbeddingConfig",
    "LanguageModellingConfig",
    "PretrainingConfig",
    "RegressConfig",
    "TagConfig",
    "TaskConfig",
    "TranslationConfig",
]
