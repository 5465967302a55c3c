"""How designs vary: sampling, crossover, mutation and repair per problem."""
