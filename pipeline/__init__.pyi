from .analysis.runs import Run as Run
from .analysis.runs import open_run as open_run
from .api import evaluate as evaluate
from .api import score as score
from .api import sweep as sweep
from .datasets.interface import Dataset as Dataset
from .errors import BudgetExhausted as BudgetExhausted
from .errors import ParseError as ParseError
from .errors import UserError as UserError
from .llm.prompt import Completion as Completion
from .llm.prompt import Prompt as Prompt
from .llm.prompt import Sampling as Sampling
from .llm.prompt import Template as Template
from .methods.interface import Method as Method
from .methods.interface import Tools as Tools
from .types import Answer as Answer
from .types import Entity as Entity
from .types import Example as Example
from .types import Gold as Gold
from .types import GoldAnswer as GoldAnswer
from .types import Prediction as Prediction
from .types import Question as Question
from .types import Relation as Relation
from .types import Triple as Triple

__version__: str
